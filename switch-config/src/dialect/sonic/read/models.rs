//! The tables of CONFIG_DB that quality of service lives in, as SONiC's YANG models type them.
//!
//! They stand in `models.toml`. One source for two uses: `check` finds violations, `yang` writes a
//! configuration as RFC 7951 has it. `meaning` finds the mistakes that models let through.

use std::sync::LazyLock;

use serde::Deserialize;

/// Unicast queues of a port; the templates of all makers configure these.
pub(crate) const QUEUES: u8 = 8;

/// How a value is typed.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FieldKind {
    /// A number of at most 32 bits, in a range.
    Number(i64, i64),
    /// A number of 64 bits: RFC 7951 writes such as strings.
    Wide,
    /// A number of 64 bits up to 100.
    Percent,
    /// `true` or `false`.
    Truth,
    /// One of these words.
    Word(Vec<String>),
    /// A number up to this, or this word.
    Or(u64, String),
    /// Numbers up to 7 with commas between them, or an empty text.
    Classes,
    /// A digit up to this, as a string; a text that is empty passes the models, too.
    Digit(u8),
    /// A DSCP, as a string; a text that is empty passes the models, too.
    Dscp,
    /// A number up to this, or two with a dash between them.
    Range(u8),
    /// Name of a row of this table.
    Row(String),
    /// Name of a row of this table, or this word.
    RowOr(String, String),
    /// Name of a port, or this word.
    Port(String),
    /// A letter or digit, then up to 31 of letters, digits, dashes and underscores.
    Label,
    /// A list of these words.
    Words(Vec<String>),
    /// Anything.
    Text,
}

/// A field of a row; a pair in the file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: FieldKind,
}

/// The form of a table's rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Rows {
    /// One per key, with these fields.
    Keyed {
        keys: Vec<Field>,
        fields: Vec<Field>,
        /// Fields that must be there.
        #[serde(default)]
        needed: Vec<String>,
    },
    /// One per name: a map from one thing to another.
    Maps { from: Field, to: Field },
    /// Only `GLOBAL`, with these fields.
    Single { fields: Vec<Field> },
}

/// A table.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// The model that it is in.
    pub(crate) module: String,
    pub(crate) rows: Rows,
}

#[derive(Deserialize)]
struct ModelsFile {
    tables: Vec<Table>,
}

/// Every table, those that others name first.
pub(crate) static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let file: ModelsFile = toml::from_str(include_str!("../models.toml")).expect("tests read it");
    file.tables
});

/// Names of the models, in the order in which they are to be loaded: leaves of the first are asked
/// for by conditions of others.
pub const MODULES: [&str; 19] = [
    "sonic-device_metadata",
    "sonic-port",
    "sonic-dscp-tc-map",
    "sonic-dot1p-tc-map",
    "sonic-tc-queue-map",
    "sonic-tc-priority-group-map",
    "sonic-tc-dscp-map",
    "sonic-pfc-priority-queue-map",
    "sonic-pfc-priority-priority-group-map",
    "sonic-scheduler",
    "sonic-wred-profile",
    "sonic-queue",
    "sonic-port-qos-map",
    "sonic-buffer-pool",
    "sonic-buffer-profile",
    "sonic-buffer-pg",
    "sonic-buffer-queue",
    "sonic-hash",
    "sonic-trimming",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_in_the_next_model() {
        let modules: Vec<&str> = TABLES.iter().map(|table| table.module.as_str()).collect();
        assert_eq!(MODULES[2..], modules);
    }
}
