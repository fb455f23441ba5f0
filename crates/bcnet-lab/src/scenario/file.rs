//! A scenario as it is written: the tables and keys of the file. `docs/scenarios.md` explains each of them.

use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) title: String,
    #[serde(default)]
    pub(super) about: String,
    pub(super) engine: Option<Spanned<String>>,
    pub(super) seed: Option<u64>,
    pub(super) settle: Option<Spanned<f64>>,
    pub(super) duration: Spanned<f64>,
    pub(super) claim: Option<Spanned<Claim>>,
    #[serde(default)]
    pub(super) node: Vec<Spanned<Node>>,
    #[serde(default)]
    pub(super) proxy: Vec<Spanned<Proxy>>,
    #[serde(default)]
    pub(super) link: Vec<Spanned<Link>>,
    #[serde(default)]
    pub(super) send: Vec<Spanned<Send>>,
    #[serde(default)]
    pub(super) inject: Vec<Spanned<Inject>>,
    #[serde(default)]
    pub(super) traffic: Vec<Spanned<Traffic>>,
    #[serde(default)]
    pub(super) leave: Vec<Spanned<Leave>>,
    #[serde(default)]
    pub(super) unwritable: Vec<Spanned<Unwritable>>,
    #[serde(default)]
    pub(super) dump: Vec<Spanned<Dump>>,
    #[serde(default)]
    pub(super) expect: Vec<Spanned<Expect>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) source: String,
    pub(super) says: String,
    pub(super) verdict: Spanned<String>,
    pub(super) finding: String,
    pub(super) label: String,
    #[serde(default)]
    pub(super) unit: String,
    pub(super) factor: Option<bool>,
    pub(super) figure: Spanned<MeasurementText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    pub(super) name: Spanned<String>,
    pub(super) role: Spanned<String>,
    pub(super) engine: Option<Spanned<String>>,
    pub(super) tick: Option<Spanned<f64>>,
    pub(super) hz: Option<Spanned<f64>>,
    pub(super) keepalive: Option<Spanned<f64>>,
    pub(super) silence: Option<Spanned<f64>>,
    pub(super) linger: Option<Spanned<f64>>,
    pub(super) buffer: Option<Spanned<u16>>,
    pub(super) clock: Option<Spanned<f64>>,
    pub(super) free_acks: Option<u32>,
    pub(super) last_ack: Option<u32>,
    pub(super) ack_step: Option<Spanned<f64>>,
    pub(super) gate: Option<Spanned<String>>,
    pub(super) age_limit: Option<Spanned<f64>>,
    pub(super) first_wait: Option<Spanned<f64>>,
    pub(super) dedup: Option<Spanned<String>>,
    pub(super) ack_place: Option<Spanned<String>>,
    pub(super) resend: Option<Spanned<String>>,
    pub(super) relayed_goodbye: Option<Spanned<String>>,
    pub(super) leaving_keepalives: Option<bool>,
    pub(super) port_map: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) plain_acks: bool,
    #[serde(default)]
    pub(super) deaf_to_part_acks: bool,
    pub(super) comparison_cost: Option<Spanned<f64>>,
    #[serde(default)]
    pub(super) blocked: Vec<[Spanned<f64>; 2]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proxy {
    pub(super) name: Spanned<String>,
    pub(super) before: Spanned<String>,
    #[serde(default)]
    pub(super) heal: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    pub(super) from: Option<Spanned<String>>,
    pub(super) to: Option<Spanned<String>>,
    pub(super) loss: Option<Spanned<f64>>,
    pub(super) burst: Option<Spanned<f64>>,
    pub(super) duplicate: Option<Spanned<f64>>,
    pub(super) reorder: Option<Spanned<f64>>,
    pub(super) reorder_by: Option<Spanned<f64>>,
    pub(super) corrupt: Option<Spanned<f64>>,
    pub(super) delay: Option<Spanned<f64>>,
    pub(super) jitter: Option<Spanned<f64>>,
    pub(super) bandwidth: Option<u64>,
    pub(super) queue: Option<usize>,
    #[serde(default)]
    pub(super) cut: Vec<[Spanned<f64>; 2]>,
    #[serde(default)]
    pub(super) lose: Vec<u64>,
    #[serde(default)]
    pub(super) double: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Send {
    pub(super) at: Spanned<f64>,
    pub(super) until: Option<Spanned<f64>>,
    pub(super) rate: Option<Spanned<f64>>,
    pub(super) count: Option<Spanned<u32>>,
    pub(super) from: Spanned<String>,
    pub(super) to: Option<Spanned<PeerRef>>,
    pub(super) to_address: Option<Spanned<String>>,
    pub(super) channel: Option<Spanned<String>>,
    pub(super) reliable: Option<bool>,
    #[serde(default)]
    pub(super) urgent: bool,
    pub(super) aggregate: Option<bool>,
    pub(super) backoff: Option<Spanned<String>>,
    pub(super) first_wait: Option<Spanned<f64>>,
    pub(super) step: Option<Spanned<f64>>,
    pub(super) size: Option<Spanned<usize>>,
    pub(super) bytes: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inject {
    pub(super) at: Spanned<f64>,
    pub(super) until: Option<Spanned<f64>>,
    pub(super) rate: Option<Spanned<f64>>,
    pub(super) into: Spanned<String>,
    pub(super) from: Spanned<String>,
    pub(super) port: Option<u16>,
    pub(super) id: u8,
    pub(super) messages: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Traffic {
    pub(super) pattern: Spanned<String>,
    pub(super) at: Option<Spanned<f64>>,
    pub(super) until: Option<Spanned<f64>>,
    pub(super) players: Option<Spanned<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Leave {
    pub(super) at: Spanned<f64>,
    pub(super) node: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unwritable {
    pub(super) at: Spanned<f64>,
    pub(super) until: Spanned<f64>,
    pub(super) node: Spanned<String>,
    pub(super) peer: Option<Spanned<PeerRef>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dump {
    pub(super) at: Spanned<f64>,
    pub(super) node: Spanned<String>,
    pub(super) peer: Option<Spanned<PeerRef>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) says: Option<String>,
    pub(super) figure: Spanned<MeasurementText>,
    pub(super) engine: Option<Spanned<String>>,
    pub(super) is: Option<Value>,
    pub(super) at_least: Option<f64>,
    pub(super) at_most: Option<f64>,
    pub(super) within: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MeasurementText {
    pub(super) of: Spanned<String>,
    pub(super) node: Option<Spanned<String>>,
    pub(super) peer: Option<Spanned<PeerRef>>,
    pub(super) at: Option<Spanned<f64>>,
    pub(super) since: Option<Spanned<f64>>,
    pub(super) until: Option<Spanned<f64>>,
    pub(super) part: Option<u8>,
}

/// A node by name, or a peer by id.
#[derive(Deserialize, Clone)]
#[serde(untagged)]
pub(super) enum PeerRef {
    Id(u8),
    Name(String),
}

#[derive(Deserialize, Clone)]
#[serde(untagged)]
pub(super) enum Value {
    One(f64),
    Many(Vec<f64>),
}
