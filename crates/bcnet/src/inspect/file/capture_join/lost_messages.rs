//! The messages that were lost on the way, one by one.

use std::io::{self, Write};
use std::time::Duration;

use bcnet_session::game::Opcode;
use bcnet_transport::wire::Role;

use super::MessageLabel;
use crate::inspect::json::Json;
use crate::queue_dump::format_time_of_day;

/// What one direction has lost.
pub(super) struct LostMessages {
    pub(super) from: Role,
    /// How many; more than are listed, if they are very many.
    pub(super) count: u64,
    /// With their times, on the clock of the capture where they were sent.
    pub(super) listed: Vec<(i64, MessageLabel)>,
}

impl LostMessages {
    /// Writes a line for each, but not for too many.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if self.listed.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n  lost, from the {}:", self.from)?;
        for (micros, what) in self.listed.iter().take(MAX_LINES) {
            writeln!(out, "    {}  {}", format_time(*micros), label_text(what))?;
        }
        let more = self.count.saturating_sub(self.listed.len().min(MAX_LINES) as u64);
        if more > 0 {
            writeln!(
                out,
                "    and {more} more; --json lists up to {} of each way",
                super::MAX_LISTED_MESSAGES
            )?;
        }
        Ok(())
    }

    pub(super) fn write_json(&self, json: &mut Json) {
        for (micros, what) in &self.listed {
            json.line(|json| {
                json.display_member("lost_from", self.from);
                json.member("time", *micros as f64 / 1e6);
                json.member("kind", what.kind.name());
                json.member("channel", what.id.map(|id| id.channel.name()));
                json.member("seq", what.id.map(|id| id.seq.0));
                json.member("part", what.id.and_then(|id| id.fragment));
                json.member("opcode", what.opcode);
            });
        }
    }
}

fn label_text(what: &MessageLabel) -> String {
    let number = what.id.map_or_else(|| "unreliable".into(), |id| id.to_string());
    let name = match what.opcode {
        Some(opcode) => format!("0x{opcode:02X} {}", Opcode(opcode).name().unwrap_or("unknown")),
        None => what.kind.name().unwrap_or("unknown").into(),
    };
    format!("{number}  {name}")
}

fn format_time(micros: i64) -> String {
    format_time_of_day(Duration::from_micros(micros.max(0).cast_unsigned()))
}

const MAX_LINES: usize = 200;
