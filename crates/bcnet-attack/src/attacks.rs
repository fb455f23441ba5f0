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
use crate::group::Measurement;
use crate::metrics::{Metric, MetricUnit};
use crate::process::Usage;

/// An attack and its victims.
#[derive(Debug)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) does: &'static str,
    /// Whether it needs addresses that are not its own.
    pub(crate) forges: bool,
    pub(crate) run: fn(&Environment) -> anyhow::Result<Vec<Metric>>,
}

/// All of them, in the order in which they are run.
pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "restart-flood",
        does: "connect requests with ever new nonces from one forged address, while seven play",
        forges: true,
        run: admission::restart_flood,
    },
    Attack {
        name: "replace-player",
        does: "connect requests forged from the addresses of players: one each, with a wrong password, with guesses, to all ports",
        forges: true,
        run: admission::replace_player,
    },
    Attack {
        name: "reflect",
        does: "datagrams of every kind and queries forged from a third party, who counts what it is sent",
        forges: true,
        run: reflection::reflect,
    },
    Attack {
        name: "reflect-proxy",
        does: "the same at a proxy, before a server that trusts it and greets whoever asks with many words",
        forges: true,
        run: reflection::reflect_proxy,
    },
    Attack {
        name: "reflect-master",
        does: "heartbeats, answers and garbage of a third party at a list server",
        forges: true,
        run: reflection::reflect_master,
    },
    Attack {
        name: "echo-loop",
        does: "one forged query that two servers answer each other for ever",
        forges: true,
        run: reflection::echo_loop,
    },
    Attack {
        name: "take-slots",
        does: "forged addresses join without hearing a word, by guessing their ids, while newcomers try to join",
        forges: true,
        run: slots::take_slots,
    },
    Attack {
        name: "keep-out",
        does: "newcomers try to join while forged networks ask, or one machine or network joins and leaves, or holds connections or ids",
        forges: true,
        run: slots::keep_out,
    },
    Attack {
        name: "garbage-flood",
        does: "empty and random datagrams, at a server and at a proxy, while seven play",
        forges: true,
        run: floods::garbage_flood,
    },
    Attack {
        name: "other-session",
        does: "the same at one session of a process, while seven play in the other",
        forges: true,
        run: floods::other_session,
    },
    Attack {
        name: "query-flood",
        does: "queries forged from 65,000 networks, while others ask honestly and seven play",
        forges: true,
        run: floods::query_flood,
    },
    Attack {
        name: "list-flood",
        does: "heartbeats forged from 65,000 networks, thousands of fake servers, and idle connections at a list server",
        forges: true,
        run: lists::list_flood,
    },
    Attack {
        name: "proxy-connects",
        does: "connect requests forged from ever new addresses at a proxy, while newcomers try to join through it",
        forges: true,
        run: proxies::proxy_connects,
    },
    Attack {
        name: "slow-metrics",
        does: "connections to a proxy's /metrics that never ask for it",
        forges: false,
        run: proxies::slow_metrics,
    },
    Attack {
        name: "bulk-sender",
        does: "a player who says as many tiny reliable messages as it may, while others chat",
        forges: false,
        run: players::bulk_sender,
    },
    Attack {
        name: "silent-member",
        does: "a player whose line is down while another says as much as it may, and who comes back",
        forges: false,
        run: members::silent_member,
    },
    Attack {
        name: "member-flood",
        does: "random datagrams from the address of a player, while seven others play",
        forges: true,
        run: members::member_flood,
    },
    Attack {
        name: "come-and-go",
        does: "one machine that joins and leaves thirty times a second, while seven play",
        forges: false,
        run: players::come_and_go,
    },
    Attack {
        name: "impersonate",
        does: "game messages under the ids of players from other addresses, while seven play",
        forges: true,
        run: players::impersonate,
    },
    Attack {
        name: "mutate",
        does: "mutated datagrams from a player who has joined, while seven play",
        forges: false,
        run: players::mutate,
    },
    Attack {
        name: "hostile-text",
        does: "names and chat with control characters, direction marks and broken UTF-16; who hears the honest?",
        forges: false,
        run: text::hostile_text,
    },
    Attack {
        name: "return-after-kick",
        does: "a player who was kicked comes back from another port of the same address",
        forges: false,
        run: players::return_after_kick,
    },
];

/// Returns what players notice of an attack: none is lost, nothing that they say is, and it comes at most 20 ms later.
fn compare(label: &str, quiet: &Measurement, attacked: &Measurement) -> Vec<Metric> {
    let usual = millis(quiet.chat.quantile(0.99));
    vec![
        Metric::new(format!("{label}players lost"), MetricUnit::Count, attacked.lost as f64)
            .without(quiet.lost as f64)
            .at_most(0.0),
        Metric::new(format!("{label}chat never heard"), MetricUnit::Share, attacked.chat_loss())
            .without(quiet.chat_loss())
            .at_most(0.0),
        Metric::new(
            format!("{label}chat, median delay"),
            MetricUnit::Millis,
            millis(attacked.chat.quantile(0.5)),
        )
        .without(millis(quiet.chat.quantile(0.5))),
        Metric::new(
            format!("{label}chat, p99 delay"),
            MetricUnit::Millis,
            millis(attacked.chat.quantile(0.99)),
        )
        .without(usual)
        .at_most(usual + 20.0),
        Metric::new(format!("{label}states lost"), MetricUnit::Share, attacked.state_loss())
            .without(quiet.state_loss()),
        Metric::new(
            format!("{label}states, p99 delay"),
            MetricUnit::Millis,
            millis(attacked.states.quantile(0.99)),
        )
        .without(millis(quiet.states.quantile(0.99))),
    ]
}

/// Returns what the attacked program took.
fn cost(label: &str, before: Usage, after: Usage, seconds: f64) -> Vec<Metric> {
    let used = after.processor.saturating_sub(before.processor).as_secs_f64() / seconds.max(0.001);
    vec![
        Metric::new(format!("{label}share of a core"), MetricUnit::Share, used),
        Metric::new(format!("{label}memory, MB"), MetricUnit::Count, after.peak_bytes as f64 / 1e6)
            .without(before.peak_bytes as f64 / 1e6),
    ]
}

/// How many honest players there are, if nothing else is said.
const PLAYERS: u16 = 7;
/// A server with places left.
const ROOMY: &str = "session.player_limit=16";
