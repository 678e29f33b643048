//! Results as a Parquet file: one row group, a plain column for every value that a row can have.
//!
//! The format is that of the Apache Parquet specification, version 1 pages: the definition bits of
//! all rows, then the values of those that have one, uncompressed.

use std::collections::BTreeMap;

use parquet_format_safe::thrift::protocol::TCompactOutputProtocol;
use parquet_format_safe::{
    ColumnChunk, ColumnMetaData, CompressionCodec, ConvertedType, DataPageHeader, Encoding,
    FieldRepetitionType, FileMetaData, PageHeader, PageType, RowGroup, SchemaElement, Type,
};
use serde_json::Value;

const MAGIC: &[u8] = b"PAR1";

/// A value of a row by its dotted name.
type FlatRow = BTreeMap<String, Value>;

/// The file with these rows; nested values become columns with dotted names.
pub fn file(rows: &[Value]) -> Vec<u8> {
    let rows: Vec<FlatRow> = rows.iter().map(flat).collect();
    let mut names: Vec<&String> = rows.iter().flat_map(BTreeMap::keys).collect();
    names.sort();
    names.dedup();
    let mut file = MAGIC.to_vec();
    let columns: Vec<ParquetColumn> = names
        .into_iter()
        .map(|name| ParquetColumn::new(name, rows.iter().map(|row| row.get(name)).collect()))
        .collect();
    let chunks: Vec<ColumnChunk> = columns
        .iter()
        .map(|column| column.write(&mut file))
        .collect();
    let metadata = metadata(&columns, chunks, (rows.len(), file.len() - MAGIC.len()));
    let footer = thrift(|out| metadata.write_to_out_protocol(out));
    file.extend_from_slice(&footer);
    file.extend_from_slice(&length(footer.len()));
    file.extend_from_slice(MAGIC);
    file
}

fn flat(row: &Value) -> FlatRow {
    let mut flat = FlatRow::new();
    flatten("", row, &mut flat);
    flat
}

fn flatten(name: &str, value: &Value, row: &mut FlatRow) {
    let inner = |key: &str| match name {
        "" => key.to_owned(),
        _ => format!("{name}.{key}"),
    };
    match value {
        Value::Null => {}
        Value::Object(values) => {
            for (key, value) in values {
                flatten(&inner(key), value, row);
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                flatten(&inner(&index.to_string()), value, row);
            }
        }
        _ => {
            row.insert(name.to_owned(), value.clone());
        }
    }
}

/// A column: its name, its kind, and the value of each row.
struct ParquetColumn<'a> {
    name: &'a str,
    kind: Type,
    values: Vec<Option<&'a Value>>,
}

impl<'a> ParquetColumn<'a> {
    /// The column of the narrowest kind that holds all values; text holds any.
    fn new(name: &'a str, values: Vec<Option<&'a Value>>) -> Self {
        let all = |fits: fn(&Value) -> bool| values.iter().flatten().all(|value| fits(value));
        let kind = if all(Value::is_boolean) {
            Type::BOOLEAN
        } else if all(Value::is_i64) {
            Type::INT64
        } else if all(Value::is_number) {
            Type::DOUBLE
        } else {
            Type::BYTE_ARRAY
        };
        Self { name, kind, values }
    }

    /// Appends the only page of the column to the file.
    fn write(&self, file: &mut Vec<u8>) -> ColumnChunk {
        let start = file.len();
        let page = self.page();
        let rows = self.values.len();
        let size = i32::try_from(page.len()).expect("a column is below 2 GiB");
        let header = PageHeader {
            type_: PageType::DATA_PAGE,
            uncompressed_page_size: size,
            compressed_page_size: size,
            crc: None,
            data_page_header: Some(DataPageHeader {
                num_values: i32::try_from(rows).expect("a plan has at most a million cells"),
                encoding: Encoding::PLAIN,
                definition_level_encoding: Encoding::RLE,
                repetition_level_encoding: Encoding::RLE,
                statistics: None,
            }),
            index_page_header: None,
            dictionary_page_header: None,
            data_page_header_v2: None,
        };
        file.extend_from_slice(&thrift(|out| header.write_to_out_protocol(out)));
        file.extend_from_slice(&page);
        self.chunk(start, file.len() - start)
    }

    fn chunk(&self, start: usize, bytes: usize) -> ColumnChunk {
        let metadata = ColumnMetaData {
            type_: self.kind,
            encodings: vec![Encoding::PLAIN, Encoding::RLE],
            path_in_schema: vec![self.name.to_owned()],
            codec: CompressionCodec::UNCOMPRESSED,
            num_values: self.values.len() as i64,
            total_uncompressed_size: bytes as i64,
            total_compressed_size: bytes as i64,
            key_value_metadata: None,
            data_page_offset: start as i64,
            index_page_offset: None,
            dictionary_page_offset: None,
            statistics: None,
            encoding_stats: None,
            bloom_filter_offset: None,
        };
        ColumnChunk {
            file_path: None,
            file_offset: start as i64,
            meta_data: Some(metadata),
            offset_index_offset: None,
            offset_index_length: None,
            column_index_offset: None,
            column_index_length: None,
            crypto_metadata: None,
            encrypted_column_metadata: None,
        }
    }

    fn page(&self) -> Vec<u8> {
        let there: Vec<bool> = self.values.iter().map(Option::is_some).collect();
        let definitions = bit_packed_run(&there);
        let mut page = length(definitions.len()).to_vec();
        page.extend(definitions);
        let values = self.values.iter().flatten();
        match self.kind {
            Type::BOOLEAN => {
                let bits: Vec<bool> = values.filter_map(|value| value.as_bool()).collect();
                page.extend(packed(&bits));
            }
            Type::INT64 => {
                let numbers = values.filter_map(|value| value.as_i64());
                page.extend(numbers.flat_map(i64::to_le_bytes));
            }
            Type::DOUBLE => {
                let numbers = values.filter_map(|value| value.as_f64());
                page.extend(numbers.flat_map(f64::to_le_bytes));
            }
            _ => values.for_each(|value| append_text(value, &mut page)),
        }
        page
    }

    fn schema(&self) -> SchemaElement {
        let text = (self.kind == Type::BYTE_ARRAY).then_some(ConvertedType::UTF8);
        SchemaElement {
            type_: Some(self.kind),
            repetition_type: Some(FieldRepetitionType::OPTIONAL),
            converted_type: text,
            ..named(self.name)
        }
    }
}

fn append_text(value: &Value, page: &mut Vec<u8>) {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    page.extend(length(text.len()));
    page.extend(text.into_bytes());
}

/// A length as Parquet writes it: four bytes, little-endian.
fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes)
        .expect("a part of the file is below 4 GiB")
        .to_le_bytes()
}

/// One bit-packed run of the hybrid encoding: its number of groups of eight, then the bits.
fn bit_packed_run(bits: &[bool]) -> Vec<u8> {
    let mut header = (bits.len().div_ceil(8) << 1) | 1;
    let mut run = Vec::new();
    while header >= 0x80 {
        run.push((header & 0x7F) as u8 | 0x80);
        header >>= 7;
    }
    run.push(header as u8);
    run.extend(packed(bits));
    run
}

/// Eight bits a byte, the first in the lowest place.
fn packed(bits: &[bool]) -> impl Iterator<Item = u8> {
    let byte = |bits: &[bool]| {
        bits.iter()
            .rev()
            .fold(0, |byte, bit| byte << 1 | u8::from(*bit))
    };
    bits.chunks(8).map(byte)
}

fn metadata(
    columns: &[ParquetColumn<'_>],
    chunks: Vec<ColumnChunk>,
    (rows, bytes): (usize, usize),
) -> FileMetaData {
    let root = SchemaElement {
        num_children: Some(i32::try_from(columns.len()).expect("columns are few")),
        ..named("cells")
    };
    let group = RowGroup {
        columns: chunks,
        total_byte_size: bytes as i64,
        num_rows: rows as i64,
        sorting_columns: None,
        file_offset: None,
        total_compressed_size: None,
        ordinal: None,
    };
    FileMetaData {
        version: 1,
        schema: [root]
            .into_iter()
            .chain(columns.iter().map(ParquetColumn::schema))
            .collect(),
        num_rows: rows as i64,
        row_groups: vec![group],
        key_value_metadata: None,
        created_by: Some(format!("gradwire version {}", env!("CARGO_PKG_VERSION"))),
        column_orders: None,
        encryption_algorithm: None,
        footer_signing_key_metadata: None,
    }
}

fn named(name: &str) -> SchemaElement {
    SchemaElement {
        type_: None,
        type_length: None,
        repetition_type: None,
        name: name.to_owned(),
        num_children: None,
        converted_type: None,
        scale: None,
        precision: None,
        field_id: None,
        logical_type: None,
    }
}

type Thrift<'a> = TCompactOutputProtocol<&'a mut Vec<u8>>;

/// The bytes of a structure of the format.
fn thrift(
    write: impl FnOnce(&mut Thrift<'_>) -> parquet_format_safe::thrift::Result<usize>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut TCompactOutputProtocol::new(&mut bytes)).expect("memory takes what is written");
    bytes
}

#[cfg(test)]
mod tests {
    use parquet_format_safe::thrift::protocol::TCompactInputProtocol;
    use serde_json::json;

    use super::*;

    type Pages<'a> = Vec<(String, Type, &'a [u8])>;

    /// The footer of a file, and of each column its name, kind and page without its header.
    fn read(file: &[u8]) -> (FileMetaData, Pages<'_>) {
        let end = file.len() - 8;
        let footer = u32::from_le_bytes(file[end..end + 4].try_into().expect("four bytes"));
        let footer = &file[end - footer as usize..end];
        let mut input = TCompactInputProtocol::new(footer, file.len());
        let metadata = FileMetaData::read_from_in_protocol(&mut input).expect("a footer");
        let columns = metadata.row_groups[0].columns.iter().map(|chunk| {
            let chunk = chunk.meta_data.as_ref().expect("it is beside the chunk");
            let start = chunk.data_page_offset as usize;
            let mut bytes = &file[start..start + chunk.total_compressed_size as usize];
            let mut input = TCompactInputProtocol::new(&mut bytes, file.len());
            let header = PageHeader::read_from_in_protocol(&mut input).expect("a page");
            assert_eq!(header.compressed_page_size as usize, bytes.len());
            (chunk.path_in_schema.join("/"), chunk.type_, bytes)
        });
        let columns = columns.collect();
        (metadata, columns)
    }

    #[test]
    fn every_value_is_in_the_column_of_its_name() {
        let rows = [
            json!({"id": "a", "result": {"p99": 1.5, "flows": 3, "drops": [{"early": 7}]}}),
            json!({"id": "b", "result": {"p99": 2, "flows": 4, "timed_out": true}}),
            json!({"id": "c", "error": "too late"}),
        ];
        let file = file(&rows);
        let (metadata, columns) = read(&file);
        assert_eq!(metadata.num_rows, 3);
        let definitions = |bits: u8| [2, 0, 0, 0, 0b11, bits];
        let expected: [(&str, Type, u8, Vec<u8>); 6] = [
            (
                "error",
                Type::BYTE_ARRAY,
                0b100,
                b"\x08\0\0\0too late".to_vec(),
            ),
            (
                "id",
                Type::BYTE_ARRAY,
                0b111,
                b"\x01\0\0\0a\x01\0\0\0b\x01\0\0\0c".to_vec(),
            ),
            (
                "result.drops.0.early",
                Type::INT64,
                0b001,
                7_i64.to_le_bytes().to_vec(),
            ),
            (
                "result.flows",
                Type::INT64,
                0b011,
                [3_i64, 4].map(i64::to_le_bytes).concat(),
            ),
            (
                "result.p99",
                Type::DOUBLE,
                0b011,
                [1.5_f64, 2.0].map(f64::to_le_bytes).concat(),
            ),
            ("result.timed_out", Type::BOOLEAN, 0b010, vec![1]),
        ];
        assert_eq!(columns.len(), expected.len());
        for ((name, kind, page), (wanted, of_kind, bits, values)) in columns.iter().zip(expected) {
            assert_eq!((&**name, *kind), (wanted, of_kind));
            assert_eq!(*page, [&definitions(bits)[..], &values].concat(), "{name}");
        }
    }

    #[test]
    fn mixed_columns_are_text() {
        let file = file(&[json!({"key": 1}), json!({"key": "auto"})]);
        let (_, columns) = read(&file);
        let page = columns[0].2;
        assert_eq!(columns[0].1, Type::BYTE_ARRAY);
        assert!(page.ends_with(b"\x01\0\0\x001\x04\0\0\0auto"), "{page:?}");
    }
}
