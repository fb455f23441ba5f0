//! The table of attacks.

mod admission;
mod capture;
mod floods;
mod goodbyes;
mod lists;
mod members;
mod players;
mod proxies;
mod proxy_slots;
mod queries;
mod reflection;
mod slots;
mod stock;
mod text;
mod uplink;

use std::thread;

use crate::Environment;
use crate::delays::millis;
use crate::group::PlayerMeasurement;
use crate::metrics::{AttackMetric, MetricUnit};
use crate::process::TargetUsage;

/// One attack, with the players that measure its effect.
#[derive(Debug)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// `true` if it needs forged source addresses.
    pub(crate) needs_forging: bool,
    pub(crate) run: fn(&Environment) -> anyhow::Result<Vec<AttackMetric>>,
}

/// All attacks, in the order in which they run.
pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "restart-flood",
        description: "connect requests, each with a new nonce, from one forged address, while seven players play",
        needs_forging: true,
        run: admission::restart_flood,
    },
    Attack {
        name: "replace-player",
        description: "connect requests forged from the addresses of players: one each, with a wrong password, with guessed ids and ACKs, from every port",
        needs_forging: true,
        run: admission::replace_player,
    },
    Attack {
        name: "reflect",
        description: "datagrams of every kind and queries, forged from a third party that counts the bytes it receives",
        needs_forging: true,
        run: reflection::reflect,
    },
    Attack {
        name: "reflect-proxy",
        description: "the same at a proxy, in front of a server that trusts it and sends long replies to every request",
        needs_forging: true,
        run: reflection::reflect_proxy,
    },
    Attack {
        name: "reflect-master",
        description: "heartbeats, answers, queries and garbage, forged from a third party, at a list server",
        needs_forging: true,
        run: reflection::reflect_master,
    },
    Attack {
        name: "echo-loop",
        description: "one forged query that two servers could answer to each other without end",
        needs_forging: true,
        run: reflection::echo_loop,
    },
    Attack {
        name: "take-slots",
        description: "forged addresses guess their ids to join, without receiving anything, while newcomers try to join",
        needs_forging: true,
        run: slots::take_slots,
    },
    Attack {
        name: "keep-out",
        description: "newcomers try to join during forged connect requests, or while one machine or network joins and leaves, or holds connections or ids",
        needs_forging: true,
        run: slots::keep_out,
    },
    Attack {
        name: "garbage-flood",
        description: "empty and random datagrams, at a server and at a proxy, while seven players play",
        needs_forging: true,
        run: floods::garbage_flood,
    },
    Attack {
        name: "other-session",
        description: "random datagrams at one session of a process, while seven players play in the other",
        needs_forging: true,
        run: floods::other_session,
    },
    Attack {
        name: "query-flood",
        description: "queries forged from 65,000 networks, while honest clients query and seven players play",
        needs_forging: true,
        run: floods::query_flood,
    },
    Attack {
        name: "query-reflect",
        description: "queries that each forged address repeats: from all networks, one /16, private networks, and all origins",
        needs_forging: true,
        run: queries::query_reflect,
    },
    Attack {
        name: "query-hide",
        description: "queries forged in the /24 network of an honest client that queries",
        needs_forging: true,
        run: queries::query_hide,
    },
    Attack {
        name: "lan-queries",
        description: "eight machines of a home network that query at once, every two seconds",
        needs_forging: false,
        run: queries::lan_queries,
    },
    Attack {
        name: "list-flood",
        description: "heartbeats forged from 65,000 networks, thousands of fake servers, and idle connections at a list server",
        needs_forging: true,
        run: lists::list_flood,
    },
    Attack {
        name: "proxy-connects",
        description: "connect requests at a proxy, each from a new forged address, while newcomers try to join through it",
        needs_forging: true,
        run: proxies::proxy_connects,
    },
    Attack {
        name: "proxy-goodbyes",
        description: "goodbyes, chat and malformed datagrams of a stranger and of a player, under the ids of others, at a proxy before a stock host",
        needs_forging: true,
        run: stock::proxy_goodbyes,
    },
    Attack {
        name: "proxy-slots",
        description: "forged addresses guess their ids to join through a proxy, before `bcnet serve` and before a stock host",
        needs_forging: true,
        run: proxy_slots::proxy_slots,
    },
    Attack {
        name: "forged-goodbye",
        description: "goodbyes under all ids, forged from the addresses and ports of players who play or are idle",
        needs_forging: true,
        run: goodbyes::forged_goodbye,
    },
    Attack {
        name: "forged-acks",
        description: "ACKs under all ids, forged from the addresses and ports of players on a lossy link",
        needs_forging: true,
        run: goodbyes::forged_acks,
    },
    Attack {
        name: "slow-metrics",
        description: "idle connections to the /metrics port of a proxy",
        needs_forging: false,
        run: proxies::slow_metrics,
    },
    Attack {
        name: "bulk-sender",
        description: "a player who sends as many reliable messages as the server allows, while others chat",
        needs_forging: false,
        run: players::bulk_sender,
    },
    Attack {
        name: "uplink",
        description: "six players who send as much as the server relays, while two others play",
        needs_forging: true,
        run: uplink::uplink,
    },
    Attack {
        name: "silent-member",
        description: "a player whose link is down while another sends as much as the server allows",
        needs_forging: false,
        run: members::silent_member,
    },
    Attack {
        name: "member-flood",
        description: "random datagrams from the address of a player, while seven other players play",
        needs_forging: true,
        run: members::member_flood,
    },
    Attack {
        name: "come-and-go",
        description: "one machine that joins and leaves thirty times a second, while seven players play",
        needs_forging: false,
        run: players::come_and_go,
    },
    Attack {
        name: "impersonate",
        description: "game messages under the ids of players from another address, while seven players play",
        needs_forging: true,
        run: players::impersonate,
    },
    Attack {
        name: "mutate",
        description: "mutated datagrams from a player who has joined, while seven players play",
        needs_forging: false,
        run: players::mutate,
    },
    Attack {
        name: "hostile-text",
        description: "names and chat with control characters, direction marks and broken UTF-16, while an honest player chats",
        needs_forging: false,
        run: text::hostile_text,
    },
    Attack {
        name: "return-after-kick",
        description: "a kicked player tries to rejoin from another port of the same address",
        needs_forging: false,
        run: players::return_after_kick,
    },
    Attack {
        name: "capture",
        description: "forged queries and connect requests while players of several networks play; `bcnet inspect` examines the capture",
        needs_forging: true,
        run: capture::capture,
    },
];

/// Runs the selected cases of an attack side by side, with separate servers.
///
/// The limits of the attack must tolerate a busy machine. Returns the metrics in the order of the cases.
fn run_cases<C: Sync>(
    env: &Environment,
    attack: &str,
    cases: &[C],
    label: fn(&C) -> &str,
    run: impl Fn(&C) -> anyhow::Result<Vec<AttackMetric>> + Sync,
) -> anyhow::Result<Vec<AttackMetric>> {
    let selected: Vec<&C> = cases.iter().filter(|case| env.is_selected(label(case))).collect();
    let results = thread::scope(|scope| {
        let start = |case| {
            env.progress(attack, label(case).trim_end_matches(": "));
            scope.spawn(|| run(case))
        };
        let threads: Vec<_> = selected.into_iter().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().map_err(|_| anyhow::anyhow!("a case has panicked"))?
        };
        threads.into_iter().map(join).collect::<anyhow::Result<Vec<_>>>()
    })?;
    Ok(results.concat())
}

/// Compares what honest players measured without (`quiet`) and during an attack.
///
/// The limits are: no player lost, no chat lost, p99 delay of chat at most 20 ms longer.
fn compare(label: &str, quiet: &PlayerMeasurement, attacked: &PlayerMeasurement) -> Vec<AttackMetric> {
    let usual = millis(quiet.chat.quantile(0.99));
    vec![
        AttackMetric::new(format!("{label}players lost"), MetricUnit::Count, attacked.lost as f64)
            .baseline(quiet.lost as f64)
            .at_most(0.0),
        AttackMetric::new(format!("{label}chat not delivered"), MetricUnit::Share, attacked.chat_loss())
            .baseline(quiet.chat_loss())
            .at_most(0.0),
        AttackMetric::new(
            format!("{label}chat, median delay"),
            MetricUnit::Millis,
            millis(attacked.chat.quantile(0.5)),
        )
        .baseline(millis(quiet.chat.quantile(0.5))),
        AttackMetric::new(
            format!("{label}chat, p99 delay"),
            MetricUnit::Millis,
            millis(attacked.chat.quantile(0.99)),
        )
        .baseline(usual)
        .at_most(usual + 20.0),
        AttackMetric::new(format!("{label}states lost"), MetricUnit::Share, attacked.state_loss())
            .baseline(quiet.state_loss()),
        AttackMetric::new(
            format!("{label}states, p99 delay"),
            MetricUnit::Millis,
            millis(attacked.states.quantile(0.99)),
        )
        .baseline(millis(quiet.states.quantile(0.99))),
    ]
}

/// Returns the share of a core and the peak memory that the attacked program used.
fn resource_usage(label: &str, before: TargetUsage, after: TargetUsage, seconds: f64) -> Vec<AttackMetric> {
    let used = after.cpu_time.saturating_sub(before.cpu_time).as_secs_f64() / seconds.max(0.001);
    vec![
        AttackMetric::new(format!("{label}share of a core"), MetricUnit::Share, used),
        AttackMetric::new(format!("{label}memory, MB"), MetricUnit::Count, after.peak_bytes as f64 / 1e6)
            .baseline(before.peak_bytes as f64 / 1e6),
    ]
}

/// Number of honest players in most attacks.
const PLAYERS: u16 = 7;
/// A setting of the server: more slots than there are honest players.
const SIXTEEN_SLOTS: &str = "session.player_limit=16";
