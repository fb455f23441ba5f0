//! A text builder that is faster than `write!`: captures have millions of findings.

use core::fmt;
use core::time::Duration;

use bcnet_wire::MessageId;

/// A text of at most [`Self::CAPACITY`] bytes. A piece that does not fit is left out.
pub(crate) struct TextBuffer {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

impl TextBuffer {
    /// More than the longest text that is built here.
    const CAPACITY: usize = 160;

    pub(crate) const fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }
    }

    pub(crate) fn as_str(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn push_str(&mut self, text: &str) -> &mut Self {
        let end = self.len + text.len();
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(text.as_bytes());
            self.len = end;
        }
        self
    }

    /// Appends a decimal number.
    pub(crate) fn push_number(&mut self, number: u64) -> &mut Self {
        let (mut digits, mut rest, mut first) = ([0; 20], number, 20);
        for (place, digit) in digits.iter_mut().enumerate().rev() {
            (*digit, rest, first) = (b'0' + (rest % 10) as u8, rest / 10, place);
            if rest == 0 {
                break;
            }
        }
        self.push_str(digits.get(first..).and_then(|digits| str::from_utf8(digits).ok()).unwrap_or_default())
    }

    /// Appends a byte as two hexadecimal digits.
    pub(crate) fn push_hex(&mut self, byte: u8) -> &mut Self {
        let digit = |value: u8| if value < 10 { b'0' + value } else { b'A' + value - 10 };
        self.push_str(str::from_utf8(&[digit(byte >> 4), digit(byte & 15)]).unwrap_or_default())
    }

    /// Appends seconds with three digits after the decimal point.
    pub(crate) fn push_seconds(&mut self, duration: Duration) -> &mut Self {
        let rounded = duration.saturating_add(Duration::from_micros(500));
        let millis = rounded.subsec_millis();
        self.push_number(rounded.as_secs()).push_str(match millis {
            0..10 => ".00",
            10..100 => ".0",
            _ => ".",
        });
        self.push_number(millis.into())
    }

    /// Appends a message id in the same form as its `Display`.
    pub(crate) fn push_message_id(
        &mut self,
        MessageId { channel, seq, fragment: part }: MessageId,
    ) -> &mut Self {
        self.push_str(channel.name()).push_str(" seq=").push_number(seq.0.into());
        if let Some(part) = part {
            self.push_str(" part=").push_number(part.into());
        }
        self
    }
}

impl fmt::Write for TextBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use bcnet_wire::{Channel, Seq};

    use super::*;

    fn written(make: impl FnOnce(&mut TextBuffer) -> &mut TextBuffer) -> alloc::string::String {
        let mut short = TextBuffer::new();
        make(&mut short);
        short.as_str().to_string()
    }

    #[test]
    fn pushed_values_match_standard_formatting() {
        for number in [0, 1, 9, 10, 65_535, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(written(|short| short.push_number(number)), number.to_string());
        }
        for byte in 0..=u8::MAX {
            assert_eq!(written(|short| short.push_hex(byte)), format!("{byte:02X}"));
        }
        for micros in [0, 499, 500, 9_499, 9_500, 99_499, 99_500, 999_499, 999_500, 12_345_678_901] {
            let millis = (micros + 500) / 1000;
            let expected = format!("{}.{:03}", millis / 1000, millis % 1000);
            assert_eq!(written(|short| short.push_seconds(Duration::from_micros(micros))), expected);
        }
        for channel in [Channel::Control, Channel::Game] {
            for part in [None, Some(0), Some(255)] {
                let id = MessageId { channel, seq: Seq(65_535), fragment: part };
                assert_eq!(written(|short| short.push_message_id(id)), id.to_string());
            }
        }
        assert_eq!(
            written(|short| short.push_str(&"a".repeat(TextBuffer::CAPACITY)).push_str("b")).len(),
            TextBuffer::CAPACITY
        );
    }
}
