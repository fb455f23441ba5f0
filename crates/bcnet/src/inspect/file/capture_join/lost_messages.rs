//! Lists the messages that were lost on the way.

use std::io::{self, Write};
use std::time::Duration;

use bcnet_session::game::Opcode;
use bcnet_transport::wire::Role;

use super::MessageLabel;
use crate::inspect::json::Json;
use crate::queue_dump::format_time_of_day;

/// The lost messages of one direction.
pub(super) struct LostMessages {
    pub(super) from: Role,
    /// The number of lost messages, which may be larger than the list.
    pub(super) count: u64,
    /// The messages with their times, on the clock of the capture where they were sent.
    pub(super) listed: Vec<(i64, MessageLabel)>,
}

impl LostMessages {
    /// Writes a line for each message, up to [`MAX_LINES`].
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if self.listed.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n  lost messages from the {}:", self.from)?;
        for (micros, label) in self.listed.iter().take(MAX_LINES) {
            writeln!(out, "    {}  {}", format_time(*micros), label_text(label))?;
        }
        let more = self.count.saturating_sub(self.listed.len().min(MAX_LINES) as u64);
        if more > 0 {
            writeln!(
                out,
                "    and {more} more; --json lists up to {} for each direction",
                super::MAX_LISTED_MESSAGES
            )?;
        }
        Ok(())
    }

    pub(super) fn write_json(&self, json: &mut Json) {
        for (micros, label) in &self.listed {
            json.line(|json| {
                json.display_member("lost_from", self.from);
                json.member("time", *micros as f64 / 1e6);
                json.member("kind", label.kind.name());
                json.member("channel", label.id.map(|id| id.channel.name()));
                json.member("seq", label.id.map(|id| id.seq.0));
                json.member("part", label.id.and_then(|id| id.fragment));
                json.member("opcode", label.opcode);
            });
        }
    }
}

fn label_text(label: &MessageLabel) -> String {
    let number = label.id.map_or_else(|| "unreliable".into(), |id| id.to_string());
    let name = match label.opcode {
        Some(opcode) => format!("0x{opcode:02X} {}", Opcode(opcode).name().unwrap_or("unknown")),
        None => label.kind.name().unwrap_or("unknown").into(),
    };
    format!("{number}  {name}")
}

fn format_time(micros: i64) -> String {
    format_time_of_day(Duration::from_micros(micros.max(0).cast_unsigned()))
}

const MAX_LINES: usize = 200;
