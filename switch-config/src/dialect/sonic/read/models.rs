//! The tables of CONFIG_DB that quality of service lives in, as SONiC's YANG models type them.
//!
//! One source for two uses: `check` finds violations, `yang` writes a configuration as
//! RFC 7951 has it. From sonic-net/sonic-buildimage, `src/sonic-yang-models/yang-models`, commit
//! 086b03bd (2026-08-23). `meaning` finds the mistakes that models let through.

use FieldKind::{
    Classes, Digit, Dscp, Label, Number, Or, Port, Range, Row, RowOr, Text, Truth, Wide, Word,
    Words,
};

/// Unicast queues of a port; the templates of all makers configure these.
pub(crate) const QUEUES: u8 = 8;

/// How a value is typed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldKind {
    /// A number of at most 32 bits, in a range.
    Number(i64, i64),
    /// A number of 64 bits, in a range: RFC 7951 writes such as strings.
    Wide(u64),
    /// `true` or `false`.
    Truth,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A number up to this, or this word.
    Or(u64, &'static str),
    /// Numbers up to 7 with commas between them, or an empty text.
    Classes,
    /// A digit up to this, as a string; a text that is empty passes the models, too.
    Digit(u8),
    /// A DSCP, as a string; a text that is empty passes the models, too.
    Dscp,
    /// A number up to this, or two with a dash between them.
    Range(u8),
    /// Name of a row of this table.
    Row(&'static str),
    /// Name of a row of this table, or this word.
    RowOr(&'static str, &'static str),
    /// Name of a port, or this word.
    Port(&'static str),
    /// A letter or digit, then up to 31 of letters, digits, dashes and underscores.
    Label,
    /// A list of these words.
    Words(&'static [&'static str]),
    /// Anything.
    Text,
}

/// A field of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: FieldKind,
}

/// Name of a table, and the model that it is in.
type Named = (&'static str, &'static str);

const fn field(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind }
}

/// The form of a table's rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    /// One per key, with these fields.
    Keyed {
        keys: &'static [Field],
        fields: &'static [Field],
        /// Fields that must be there.
        needed: &'static [&'static str],
    },
    /// One per name: a map from one thing to another.
    Maps { from: Field, to: Field },
    /// Only `GLOBAL`, with these fields.
    Single { fields: &'static [Field] },
}

/// A table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// The model that it is in.
    pub(crate) module: &'static str,
    pub(crate) rows: Rows,
}

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

const TC: FieldKind = Number(0, 15);
const U32: FieldKind = Number(0, u32::MAX as i64);
const U64: FieldKind = Wide(u64::MAX);
const PERCENT: FieldKind = Wide(100);
const LABEL: &[Field] = &[field("name", Label)];
const NAME: &[Field] = &[field("name", Text)];
const HASH_FIELDS: FieldKind = Words(&[
    "IN_PORT",
    "DST_MAC",
    "SRC_MAC",
    "ETHERTYPE",
    "VLAN_ID",
    "IP_PROTOCOL",
    "DST_IP",
    "SRC_IP",
    "L4_DST_PORT",
    "L4_SRC_PORT",
    "INNER_DST_MAC",
    "INNER_SRC_MAC",
    "INNER_ETHERTYPE",
    "INNER_IP_PROTOCOL",
    "INNER_DST_IP",
    "INNER_SRC_IP",
    "INNER_L4_DST_PORT",
    "INNER_L4_SRC_PORT",
    "IPV6_FLOW_LABEL",
]);
const HASH_ALGORITHM: FieldKind = Word(&[
    "CRC",
    "XOR",
    "RANDOM",
    "CRC_32LO",
    "CRC_32HI",
    "CRC_CCITT",
    "CRC_XOR",
]);

const fn maps((name, module): Named, from: Field, to: Field) -> Table {
    let rows = Rows::Maps { from, to };
    Table { name, module, rows }
}

const fn keyed(
    (name, module): Named,
    keys: &'static [Field],
    fields: &'static [Field],
    needed: &'static [&'static str],
) -> Table {
    let rows = Rows::Keyed {
        keys,
        fields,
        needed,
    };
    Table { name, module, rows }
}

const fn single((name, module): Named, fields: &'static [Field]) -> Table {
    let rows = Rows::Single { fields };
    Table { name, module, rows }
}

/// Every table, those that others name first.
pub(crate) const TABLES: [Table; 17] = [
    maps(
        ("DSCP_TO_TC_MAP", "sonic-dscp-tc-map"),
        field("dscp", Dscp),
        field("tc", TC),
    ),
    maps(
        ("DOT1P_TO_TC_MAP", "sonic-dot1p-tc-map"),
        field("dot1p", Digit(7)),
        field("tc", TC),
    ),
    maps(
        ("TC_TO_QUEUE_MAP", "sonic-tc-queue-map"),
        field("tc", TC),
        field("qindex", Digit(9)),
    ),
    maps(
        ("TC_TO_PRIORITY_GROUP_MAP", "sonic-tc-priority-group-map"),
        field("tc", TC),
        field("pg", Digit(7)),
    ),
    maps(
        ("TC_TO_DSCP_MAP", "sonic-tc-dscp-map"),
        field("tc", TC),
        field("dscp", Dscp),
    ),
    maps(
        ("MAP_PFC_PRIORITY_TO_QUEUE", "sonic-pfc-priority-queue-map"),
        field("pfc_priority", Digit(7)),
        field("qindex", Digit(7)),
    ),
    maps(
        (
            "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP",
            "sonic-pfc-priority-priority-group-map",
        ),
        field("pfc_priority", Digit(7)),
        field("pg", Digit(7)),
    ),
    keyed(
        ("SCHEDULER", "sonic-scheduler"),
        NAME,
        &[
            field("type", Word(&["DWRR", "WRR", "STRICT"])),
            field("weight", Number(1, 100)),
            field("priority", Number(0, 9)),
            field("meter_type", Word(&["packets", "bytes"])),
            field("cir", U64),
            field("pir", U64),
            field("cbs", U32),
            field("pbs", U32),
        ],
        &[],
    ),
    keyed(
        ("WRED_PROFILE", "sonic-wred-profile"),
        LABEL,
        &[
            field("green_min_threshold", U64),
            field("green_max_threshold", U64),
            field("green_drop_probability", PERCENT),
            field("wred_green_enable", Truth),
            field("yellow_min_threshold", U64),
            field("yellow_max_threshold", U64),
            field("yellow_drop_probability", PERCENT),
            field("wred_yellow_enable", Truth),
            field("red_min_threshold", U64),
            field("red_max_threshold", U64),
            field("red_drop_probability", PERCENT),
            field("wred_red_enable", Truth),
            field(
                "ecn",
                Word(&[
                    "ecn_none",
                    "ecn_green",
                    "ecn_yellow",
                    "ecn_red",
                    "ecn_green_yellow",
                    "ecn_green_red",
                    "ecn_yellow_red",
                    "ecn_all",
                ]),
            ),
        ],
        &[],
    ),
    keyed(
        ("QUEUE", "sonic-queue"),
        &[field("ifname", Port("CPU")), field("qindex", Text)],
        &[
            field("scheduler", Row("SCHEDULER")),
            field("wred_profile", Row("WRED_PROFILE")),
        ],
        &[],
    ),
    keyed(
        ("PORT_QOS_MAP", "sonic-port-qos-map"),
        &[field("ifname", Port("global"))],
        &[
            field("dscp_to_tc_map", Row("DSCP_TO_TC_MAP")),
            field("dot1p_to_tc_map", Row("DOT1P_TO_TC_MAP")),
            field("tc_to_queue_map", Row("TC_TO_QUEUE_MAP")),
            field("tc_to_pg_map", Row("TC_TO_PRIORITY_GROUP_MAP")),
            field("tc_to_dscp_map", Row("TC_TO_DSCP_MAP")),
            field("pfc_to_queue_map", Row("MAP_PFC_PRIORITY_TO_QUEUE")),
            field("pfc_to_pg_map", Row("PFC_PRIORITY_TO_PRIORITY_GROUP_MAP")),
            field("pfc_enable", Classes),
            field("pfcwd_sw_enable", Classes),
            field("scheduler", Row("SCHEDULER")),
        ],
        &[],
    ),
    keyed(
        ("BUFFER_POOL", "sonic-buffer-pool"),
        NAME,
        &[
            field("type", Word(&["ingress", "egress", "both"])),
            field("mode", Word(&["static", "dynamic"])),
            field("size", U64),
            field("xoff", U64),
            field("percentage", Number(0, 255)),
        ],
        &["type", "mode"],
    ),
    keyed(
        ("BUFFER_PROFILE", "sonic-buffer-profile"),
        NAME,
        &[
            field("static_th", U64),
            field("dynamic_th", Number(-8, 7)),
            field("size", U64),
            field("pool", Row("BUFFER_POOL")),
            field("xon_offset", U64),
            field("xon", U64),
            field("xoff", U64),
            field("headroom_type", Word(&["static", "dynamic"])),
            field("packet_discard_action", Word(&["drop", "trim"])),
        ],
        &["pool", "size"],
    ),
    keyed(
        ("BUFFER_PG", "sonic-buffer-pg"),
        &[field("port", Port("")), field("pg_num", Range(7))],
        &[field("profile", RowOr("BUFFER_PROFILE", "NULL"))],
        &["profile"],
    ),
    keyed(
        ("BUFFER_QUEUE", "sonic-buffer-queue"),
        &[field("port", Port("")), field("qindex", Range(15))],
        &[field("profile", Row("BUFFER_PROFILE"))],
        &["profile"],
    ),
    single(
        ("SWITCH_HASH", "sonic-hash"),
        &[
            field("ecmp_hash", HASH_FIELDS),
            field("lag_hash", HASH_FIELDS),
            field("ecmp_hash_algorithm", HASH_ALGORITHM),
            field("lag_hash_algorithm", HASH_ALGORITHM),
        ],
    ),
    single(
        ("SWITCH_TRIMMING", "sonic-trimming"),
        &[
            field("size", U32),
            field("dscp_value", Or(63, "from-tc")),
            field("tc_value", Number(0, 255)),
            field("queue_index", Or(255, "dynamic")),
        ],
    ),
];
