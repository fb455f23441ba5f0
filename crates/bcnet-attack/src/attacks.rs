//! The attacks, by name.

mod admission;
mod floods;
mod lists;
mod members;
mod players;
mod proxies;
mod reflection;
mod slots;
mod text;

use crate::Environment;
use crate::delays::millis;
use crate::group::PlayerMeasurement;
use crate::metrics::{AttackMetric, MetricUnit};
use crate::process::TargetUsage;

/// An attack and its victims.
#[derive(Debug)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Whether it needs addresses that are not its own.
    pub(crate) needs_forging: bool,
    pub(crate) run: fn(&Environment) -> anyhow::Result<Vec<AttackMetric>>,
}

/// All of them, in the order in which they are run.
pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "restart-flood",
        description: "connect requests with ever new nonces from one forged address, while seven play",
        needs_forging: true,
        run: admission::restart_flood,
    },
    Attack {
        name: "replace-player",
        description: "connect requests forged from the addresses of players: one each, with a wrong password, with guesses, to all ports",
        needs_forging: true,
        run: admission::replace_player,
    },
    Attack {
        name: "reflect",
        description: "datagrams of every kind and queries forged from a third party, who counts what it is sent",
        needs_forging: true,
        run: reflection::reflect,
    },
    Attack {
        name: "reflect-proxy",
        description: "the same at a proxy, before a server that trusts it and greets whoever asks with many words",
        needs_forging: true,
        run: reflection::reflect_proxy,
    },
    Attack {
        name: "reflect-master",
        description: "heartbeats, answers and garbage of a third party at a list server",
        needs_forging: true,
        run: reflection::reflect_master,
    },
    Attack {
        name: "echo-loop",
        description: "one forged query that two servers answer each other for ever",
        needs_forging: true,
        run: reflection::echo_loop,
    },
    Attack {
        name: "take-slots",
        description: "forged addresses join without hearing a word, by guessing their ids, while newcomers try to join",
        needs_forging: true,
        run: slots::take_slots,
    },
    Attack {
        name: "keep-out",
        description: "newcomers try to join while forged networks ask, or one machine or network joins and leaves, or holds connections or ids",
        needs_forging: true,
        run: slots::keep_out,
    },
    Attack {
        name: "garbage-flood",
        description: "empty and random datagrams, at a server and at a proxy, while seven play",
        needs_forging: true,
        run: floods::garbage_flood,
    },
    Attack {
        name: "other-session",
        description: "the same at one session of a process, while seven play in the other",
        needs_forging: true,
        run: floods::other_session,
    },
    Attack {
        name: "query-flood",
        description: "queries forged from 65,000 networks, while others ask honestly and seven play",
        needs_forging: true,
        run: floods::query_flood,
    },
    Attack {
        name: "list-flood",
        description: "heartbeats forged from 65,000 networks, thousands of fake servers, and idle connections at a list server",
        needs_forging: true,
        run: lists::list_flood,
    },
    Attack {
        name: "proxy-connects",
        description: "connect requests forged from ever new addresses at a proxy, while newcomers try to join through it",
        needs_forging: true,
        run: proxies::proxy_connects,
    },
    Attack {
        name: "slow-metrics",
        description: "connections to a proxy's /metrics that never ask for it",
        needs_forging: false,
        run: proxies::slow_metrics,
    },
    Attack {
        name: "bulk-sender",
        description: "a player who says as many tiny reliable messages as it may, while others chat",
        needs_forging: false,
        run: players::bulk_sender,
    },
    Attack {
        name: "silent-member",
        description: "a player whose line is down while another says as much as it may, and who comes back",
        needs_forging: false,
        run: members::silent_member,
    },
    Attack {
        name: "member-flood",
        description: "random datagrams from the address of a player, while seven others play",
        needs_forging: true,
        run: members::member_flood,
    },
    Attack {
        name: "come-and-go",
        description: "one machine that joins and leaves thirty times a second, while seven play",
        needs_forging: false,
        run: players::come_and_go,
    },
    Attack {
        name: "impersonate",
        description: "game messages under the ids of players from other addresses, while seven play",
        needs_forging: true,
        run: players::impersonate,
    },
    Attack {
        name: "mutate",
        description: "mutated datagrams from a player who has joined, while seven play",
        needs_forging: false,
        run: players::mutate,
    },
    Attack {
        name: "hostile-text",
        description: "names and chat with control characters, direction marks and broken UTF-16; who hears the honest?",
        needs_forging: false,
        run: text::hostile_text,
    },
    Attack {
        name: "return-after-kick",
        description: "a player who was kicked comes back from another port of the same address",
        needs_forging: false,
        run: players::return_after_kick,
    },
];

/// Returns what players notice of an attack: none is lost, nothing that they say is, and it comes at most 20 ms later.
fn compare(label: &str, quiet: &PlayerMeasurement, attacked: &PlayerMeasurement) -> Vec<AttackMetric> {
    let usual = millis(quiet.chat.quantile(0.99));
    vec![
        AttackMetric::new(format!("{label}players lost"), MetricUnit::Count, attacked.lost as f64)
            .baseline(quiet.lost as f64)
            .at_most(0.0),
        AttackMetric::new(format!("{label}chat never heard"), MetricUnit::Share, attacked.chat_loss())
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

/// Returns what the attacked program took.
fn resource_usage(label: &str, before: TargetUsage, after: TargetUsage, seconds: f64) -> Vec<AttackMetric> {
    let used = after.cpu_time.saturating_sub(before.cpu_time).as_secs_f64() / seconds.max(0.001);
    vec![
        AttackMetric::new(format!("{label}share of a core"), MetricUnit::Share, used),
        AttackMetric::new(format!("{label}memory, MB"), MetricUnit::Count, after.peak_bytes as f64 / 1e6)
            .baseline(before.peak_bytes as f64 / 1e6),
    ]
}

/// How many honest players there are, if nothing else is said.
const PLAYERS: u16 = 7;
/// A server with places left.
const SIXTEEN_SLOTS: &str = "session.player_limit=16";
