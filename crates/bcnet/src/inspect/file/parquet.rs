//! Writes rows into a Parquet file, column by column.

use std::io;
use std::path::Path;

use super::table::{MessageRow, RowWriter};
use crate::parquet_file::{ByteArray, ByteArrayType, Int32Type, Int64Type, ParquetError, ParquetFile};

pub(super) struct ParquetWriter {
    /// `None` once the file is finished.
    out: Option<ParquetFile>,
    columns: ColumnBuffers,
}

/// The rows that are not written yet, in the order of [`SCHEMA`].
#[derive(Default)]
struct ColumnBuffers {
    packet: OptionalColumn<i64>,
    time: Vec<i64>,
    from: Vec<ByteArray>,
    to: Vec<ByteArray>,
    sender: OptionalColumn<i32>,
    kind: Vec<ByteArray>,
    len: Vec<i32>,
    channel: OptionalColumn<ByteArray>,
    seq: OptionalColumn<i32>,
    part: OptionalColumn<i32>,
    total: OptionalColumn<i32>,
    opcode: OptionalColumn<i32>,
    name: OptionalColumn<ByteArray>,
    payload_len: Vec<i32>,
    findings: Vec<ByteArray>,
}

/// Optional values, and for each row whether it has one.
struct OptionalColumn<T> {
    values: Vec<T>,
    definition_levels: Vec<i16>,
}

impl<T> Default for OptionalColumn<T> {
    fn default() -> Self {
        Self { values: Vec::new(), definition_levels: Vec::new() }
    }
}

impl<T> OptionalColumn<T> {
    fn push(&mut self, value: Option<T>) {
        self.definition_levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

impl ParquetWriter {
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        Ok(Self { out: Some(ParquetFile::create(path, SCHEMA)?), columns: ColumnBuffers::default() })
    }

    fn write_buffered(&mut self) -> Result<(), ParquetError> {
        let columns = std::mem::take(&mut self.columns);
        let Some(out) = self.out.as_mut().filter(|_| !columns.time.is_empty()) else { return Ok(()) };
        out.write_row_group(|group| {
            group
                .write_column::<Int64Type>(&columns.packet.values, Some(&columns.packet.definition_levels))?;
            group.write_column::<Int64Type>(&columns.time, None)?;
            group.write_column::<ByteArrayType>(&columns.from, None)?;
            group.write_column::<ByteArrayType>(&columns.to, None)?;
            group
                .write_column::<Int32Type>(&columns.sender.values, Some(&columns.sender.definition_levels))?;
            group.write_column::<ByteArrayType>(&columns.kind, None)?;
            group.write_column::<Int32Type>(&columns.len, None)?;
            group.write_column::<ByteArrayType>(
                &columns.channel.values,
                Some(&columns.channel.definition_levels),
            )?;
            for optional in [&columns.seq, &columns.part, &columns.total, &columns.opcode] {
                group.write_column::<Int32Type>(&optional.values, Some(&optional.definition_levels))?;
            }
            group
                .write_column::<ByteArrayType>(&columns.name.values, Some(&columns.name.definition_levels))?;
            group.write_column::<Int32Type>(&columns.payload_len, None)?;
            group.write_column::<ByteArrayType>(&columns.findings, None)
        })
    }
}

impl RowWriter for ParquetWriter {
    fn write_row(&mut self, row: &MessageRow) -> io::Result<()> {
        let columns = &mut self.columns;
        let text = |text: &str| ByteArray::from(text.as_bytes().to_vec());
        columns.packet.push(row.packet.map(u64::cast_signed));
        columns.time.push(row.time.cast_signed());
        columns.from.push(text(&row.from));
        columns.to.push(text(&row.to));
        columns.sender.push(row.sender.map(i32::from));
        columns.kind.push(text(row.kind));
        columns.len.push(row.len.cast_signed());
        columns.channel.push(row.channel.map(|channel| text(&channel.to_string())));
        columns.seq.push(row.seq.map(i32::from));
        columns.part.push(row.part.map(i32::from));
        columns.total.push(row.total.map(i32::from));
        columns.opcode.push(row.opcode.map(i32::from));
        columns.name.push(row.name.map(text));
        columns.payload_len.push(row.payload_len.cast_signed());
        columns.findings.push(text(&row.findings));
        if columns.time.len() >= ROW_GROUP_SIZE {
            self.write_buffered().map_err(io::Error::other)
        } else {
            Ok(())
        }
    }

    /// Does nothing: an unfinished Parquet file cannot be read.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write_buffered().map_err(io::Error::other)?;
        match self.out.take() {
            Some(out) => out.finish().map_err(io::Error::other),
            None => Ok(()),
        }
    }
}

const SCHEMA: &str = "message message {
    optional int64 packet;
    required int64 time (timestamp(micros, true));
    required binary from (utf8);
    required binary to (utf8);
    optional int32 sender;
    required binary kind (utf8);
    required int32 len;
    optional binary channel (utf8);
    optional int32 seq;
    optional int32 part;
    optional int32 total;
    optional int32 opcode;
    optional binary name (utf8);
    required int32 payload_len;
    required binary findings (utf8);
}";
/// The number of rows that are written together.
const ROW_GROUP_SIZE: usize = 1 << 14;
