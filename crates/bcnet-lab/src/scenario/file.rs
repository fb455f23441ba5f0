//! A scenario as it is written: the tables and keys of the file. `docs/scenarios.md` explains each of them.

use serde::Deserialize;
use toml::Spanned;

/// A value and where it stands.
pub(super) type Placed<T> = Spanned<T>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) title: String,
    #[serde(default)]
    pub(super) about: String,
    pub(super) engine: Option<Placed<String>>,
    pub(super) seed: Option<u64>,
    pub(super) settle: Option<Placed<f64>>,
    pub(super) duration: Placed<f64>,
    pub(super) claim: Option<Placed<Claim>>,
    #[serde(default)]
    pub(super) node: Vec<Placed<Node>>,
    #[serde(default)]
    pub(super) link: Vec<Placed<Link>>,
    #[serde(default)]
    pub(super) send: Vec<Placed<Send>>,
    #[serde(default)]
    pub(super) inject: Vec<Placed<Inject>>,
    #[serde(default)]
    pub(super) traffic: Vec<Placed<Traffic>>,
    #[serde(default)]
    pub(super) leave: Vec<Placed<Leave>>,
    #[serde(default)]
    pub(super) dump: Vec<Placed<Dump>>,
    #[serde(default)]
    pub(super) expect: Vec<Placed<Expect>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) source: String,
    pub(super) says: String,
    pub(super) verdict: Placed<String>,
    pub(super) finding: String,
    pub(super) label: String,
    #[serde(default)]
    pub(super) unit: String,
    pub(super) figure: Placed<Figure>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    pub(super) name: Placed<String>,
    pub(super) role: Placed<String>,
    pub(super) engine: Option<Placed<String>>,
    pub(super) tick: Option<Placed<f64>>,
    pub(super) hz: Option<Placed<f64>>,
    pub(super) keepalive: Option<Placed<f64>>,
    pub(super) silence: Option<Placed<f64>>,
    pub(super) linger: Option<Placed<f64>>,
    pub(super) buffer: Option<Placed<u16>>,
    pub(super) clock: Option<Placed<f64>>,
    pub(super) free_acks: Option<u32>,
    pub(super) last_ack: Option<u32>,
    pub(super) ack_step: Option<Placed<f64>>,
    pub(super) gate: Option<Placed<String>>,
    #[serde(default)]
    pub(super) plain_acks: bool,
    #[serde(default)]
    pub(super) deaf_to_part_acks: bool,
    pub(super) comparison_cost: Option<Placed<f64>>,
    #[serde(default)]
    pub(super) blocked: Vec<[Placed<f64>; 2]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    pub(super) from: Option<Placed<String>>,
    pub(super) to: Option<Placed<String>>,
    pub(super) loss: Option<Placed<f64>>,
    pub(super) burst: Option<Placed<f64>>,
    pub(super) duplicate: Option<Placed<f64>>,
    pub(super) reorder: Option<Placed<f64>>,
    pub(super) reorder_by: Option<Placed<f64>>,
    pub(super) corrupt: Option<Placed<f64>>,
    pub(super) delay: Option<Placed<f64>>,
    pub(super) jitter: Option<Placed<f64>>,
    pub(super) bandwidth: Option<u64>,
    pub(super) queue: Option<usize>,
    #[serde(default)]
    pub(super) cut: Vec<[Placed<f64>; 2]>,
    #[serde(default)]
    pub(super) lose: Vec<u64>,
    #[serde(default)]
    pub(super) double: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Send {
    pub(super) at: Placed<f64>,
    pub(super) until: Option<Placed<f64>>,
    pub(super) rate: Option<Placed<f64>>,
    pub(super) count: Option<Placed<u32>>,
    pub(super) from: Placed<String>,
    pub(super) to: Option<Placed<Who>>,
    pub(super) channel: Option<Placed<String>>,
    pub(super) reliable: Option<bool>,
    #[serde(default)]
    pub(super) urgent: bool,
    pub(super) aggregate: Option<bool>,
    pub(super) size: Option<Placed<usize>>,
    pub(super) bytes: Option<Placed<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inject {
    pub(super) at: Placed<f64>,
    pub(super) until: Option<Placed<f64>>,
    pub(super) rate: Option<Placed<f64>>,
    pub(super) into: Placed<String>,
    pub(super) from: Placed<String>,
    pub(super) id: u8,
    pub(super) messages: Vec<Placed<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Traffic {
    pub(super) pattern: Placed<String>,
    pub(super) at: Option<Placed<f64>>,
    pub(super) until: Option<Placed<f64>>,
    pub(super) players: Option<Placed<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Leave {
    pub(super) at: Placed<f64>,
    pub(super) node: Placed<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dump {
    pub(super) at: Placed<f64>,
    pub(super) node: Placed<String>,
    pub(super) peer: Option<Placed<Who>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) figure: Placed<Figure>,
    pub(super) engine: Option<Placed<String>>,
    pub(super) is: Option<Value>,
    pub(super) at_least: Option<f64>,
    pub(super) at_most: Option<f64>,
    pub(super) within: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    pub(super) of: Placed<String>,
    pub(super) node: Option<Placed<String>>,
    pub(super) peer: Option<Placed<Who>>,
    pub(super) at: Option<Placed<f64>>,
    pub(super) since: Option<Placed<f64>>,
    pub(super) until: Option<Placed<f64>>,
    pub(super) part: Option<u8>,
}

/// A node by name, or a peer by id.
#[derive(Deserialize, Clone)]
#[serde(untagged)]
pub(super) enum Who {
    Id(u8),
    Name(String),
}

#[derive(Deserialize, Clone)]
#[serde(untagged)]
pub(super) enum Value {
    One(f64),
    Many(Vec<f64>),
}
