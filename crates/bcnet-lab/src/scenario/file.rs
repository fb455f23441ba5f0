//! The tables and keys of a scenario file, as serde types. `docs/reference/scenarios.md` explains each key.

use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioFile {
    pub(super) title: String,
    #[serde(default)]
    pub(super) about: String,
    pub(super) engine: Option<Spanned<String>>,
    pub(super) seed: Option<u64>,
    pub(super) settle: Option<Spanned<f64>>,
    pub(super) duration: Spanned<f64>,
    pub(super) claim: Option<Spanned<ClaimTable>>,
    #[serde(default)]
    pub(super) node: Vec<Spanned<NodeTable>>,
    #[serde(default)]
    pub(super) proxy: Vec<Spanned<ProxyTable>>,
    #[serde(default)]
    pub(super) link: Vec<Spanned<LinkTable>>,
    #[serde(default)]
    pub(super) send: Vec<Spanned<SendTable>>,
    #[serde(default)]
    pub(super) inject: Vec<Spanned<InjectTable>>,
    #[serde(default)]
    pub(super) traffic: Vec<Spanned<TrafficTable>>,
    #[serde(default)]
    pub(super) leave: Vec<Spanned<LeaveTable>>,
    #[serde(default)]
    pub(super) unwritable: Vec<Spanned<UnwritableTable>>,
    #[serde(default)]
    pub(super) dump: Vec<Spanned<DumpTable>>,
    #[serde(default)]
    pub(super) expect: Vec<Spanned<ExpectTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimTable {
    pub(super) source: String,
    pub(super) says: String,
    pub(super) verdict: Spanned<String>,
    pub(super) finding: String,
    pub(super) label: String,
    #[serde(default)]
    pub(super) unit: String,
    pub(super) factor: Option<bool>,
    pub(super) figure: Spanned<MeasurementTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeTable {
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
pub(super) struct ProxyTable {
    pub(super) name: Spanned<String>,
    pub(super) before: Spanned<String>,
    #[serde(default)]
    pub(super) heal: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkTable {
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
pub(super) struct SendTable {
    pub(super) at: Spanned<f64>,
    pub(super) until: Option<Spanned<f64>>,
    pub(super) rate: Option<Spanned<f64>>,
    pub(super) count: Option<Spanned<u32>>,
    pub(super) from: Spanned<String>,
    pub(super) to: Option<Spanned<PeerRefValue>>,
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
pub(super) struct InjectTable {
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
pub(super) struct TrafficTable {
    pub(super) pattern: Spanned<String>,
    pub(super) at: Option<Spanned<f64>>,
    pub(super) until: Option<Spanned<f64>>,
    pub(super) players: Option<Spanned<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaveTable {
    pub(super) at: Spanned<f64>,
    pub(super) node: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnwritableTable {
    pub(super) at: Spanned<f64>,
    pub(super) until: Spanned<f64>,
    pub(super) node: Spanned<String>,
    pub(super) peer: Option<Spanned<PeerRefValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DumpTable {
    pub(super) at: Spanned<f64>,
    pub(super) node: Spanned<String>,
    pub(super) peer: Option<Spanned<PeerRefValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectTable {
    pub(super) says: Option<String>,
    pub(super) figure: Spanned<MeasurementTable>,
    pub(super) engine: Option<Spanned<String>>,
    pub(super) is: Option<ExpectedNumbers>,
    pub(super) at_least: Option<f64>,
    pub(super) at_most: Option<f64>,
    pub(super) within: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MeasurementTable {
    pub(super) of: Spanned<String>,
    pub(super) node: Option<Spanned<String>>,
    pub(super) peer: Option<Spanned<PeerRefValue>>,
    pub(super) at: Option<Spanned<f64>>,
    pub(super) since: Option<Spanned<f64>>,
    pub(super) until: Option<Spanned<f64>>,
    pub(super) part: Option<u8>,
}

/// A node by name, or a peer by id.
#[derive(Deserialize, Clone)]
#[serde(untagged)]
pub(super) enum PeerRefValue {
    Id(u8),
    Name(String),
}

#[derive(Deserialize, Clone)]
#[serde(untagged)]
pub(super) enum ExpectedNumbers {
    One(f64),
    Many(Vec<f64>),
}
