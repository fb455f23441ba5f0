//! Parquet files, written column by column.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

pub(crate) use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
pub(crate) use parquet::errors::ParquetError;

use parquet::data_type::DataType;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// A file that is being written. It is readable only after [`ParquetFile::finish`].
pub(crate) struct ParquetFile(SerializedFileWriter<File>);

/// A group of rows that are written together.
pub(crate) struct RowGroup<'a>(SerializedRowGroupWriter<'a, File>);

impl ParquetFile {
    pub(crate) fn create(path: &Path, schema: &str) -> anyhow::Result<Self> {
        let schema = Arc::new(parse_message_type(schema)?);
        let properties = Arc::new(WriterProperties::builder().build());
        Ok(Self(SerializedFileWriter::new(File::create(path)?, schema, properties)?))
    }

    /// Writes a group of rows. `fill` writes all columns, in the order of the schema.
    pub(crate) fn write_row_group(
        &mut self,
        fill: impl FnOnce(&mut RowGroup<'_>) -> Result<(), ParquetError>,
    ) -> Result<(), ParquetError> {
        let mut group = RowGroup(self.0.next_row_group()?);
        fill(&mut group)?;
        group.0.close().map(drop)
    }

    pub(crate) fn finish(self) -> Result<(), ParquetError> {
        self.0.close().map(drop)
    }
}

impl RowGroup<'_> {
    /// Writes the next column.
    ///
    /// For an optional column, `there` states for each row whether it has a value.
    pub(crate) fn write_column<T: DataType>(
        &mut self,
        values: &[T::T],
        there: Option<&[i16]>,
    ) -> Result<(), ParquetError> {
        let Some(mut column) = self.0.next_column()? else { return Ok(()) };
        column.typed::<T>().write_batch(values, there, None)?;
        column.close()
    }
}
