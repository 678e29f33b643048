//! The tables of CONFIG_DB that quality of service lives in, as SONiC's YANG models type them.
//!
//! One source for two uses: `check` finds what the models forbid, `yang` writes a configuration as
//! RFC 7951 has it. From sonic-net/sonic-buildimage, `src/sonic-yang-models/yang-models`, commit
//! 086b03bd (2026-08-23). What models let through all the same is found in `meaning`.

/// How a value is typed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
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
    /// Numbers up to 7 with commas between them, or nothing.
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
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind }
}

/// What the rows of a table are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rows {
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
pub(super) struct Table {
    pub(super) name: &'static str,
    /// The model that it is in.
    pub(super) module: &'static str,
    pub(super) rows: Rows,
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

const TC: Kind = Kind::Number(0, 15);
const U32: Kind = Kind::Number(0, u32::MAX as i64);
const U64: Kind = Kind::Wide(u64::MAX);
const PERCENT: Kind = Kind::Wide(100);
const LABEL: &[Field] = &[field("name", Kind::Label)];
const NAME: &[Field] = &[field("name", Kind::Text)];
const HASH_FIELDS: Kind = Kind::Words(&[
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
const HASH_ALGORITHM: Kind = Kind::Word(&[
    "CRC",
    "XOR",
    "RANDOM",
    "CRC_32LO",
    "CRC_32HI",
    "CRC_CCITT",
    "CRC_XOR",
]);

const fn maps(name: &'static str, module: &'static str, from: Field, to: Field) -> Table {
    let rows = Rows::Maps { from, to };
    Table { name, module, rows }
}

/// Every table, those that others name first.
pub(super) const TABLES: [Table; 17] = [
    maps(
        "DSCP_TO_TC_MAP",
        "sonic-dscp-tc-map",
        field("dscp", Kind::Dscp),
        field("tc", TC),
    ),
    maps(
        "DOT1P_TO_TC_MAP",
        "sonic-dot1p-tc-map",
        field("dot1p", Kind::Digit(7)),
        field("tc", TC),
    ),
    maps(
        "TC_TO_QUEUE_MAP",
        "sonic-tc-queue-map",
        field("tc", TC),
        field("qindex", Kind::Digit(9)),
    ),
    maps(
        "TC_TO_PRIORITY_GROUP_MAP",
        "sonic-tc-priority-group-map",
        field("tc", TC),
        field("pg", Kind::Digit(7)),
    ),
    maps(
        "TC_TO_DSCP_MAP",
        "sonic-tc-dscp-map",
        field("tc", TC),
        field("dscp", Kind::Dscp),
    ),
    maps(
        "MAP_PFC_PRIORITY_TO_QUEUE",
        "sonic-pfc-priority-queue-map",
        field("pfc_priority", Kind::Digit(7)),
        field("qindex", Kind::Digit(7)),
    ),
    maps(
        "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP",
        "sonic-pfc-priority-priority-group-map",
        field("pfc_priority", Kind::Digit(7)),
        field("pg", Kind::Digit(7)),
    ),
    Table {
        name: "SCHEDULER",
        module: "sonic-scheduler",
        rows: Rows::Keyed {
            keys: NAME,
            fields: &[
                field("type", Kind::Word(&["DWRR", "WRR", "STRICT"])),
                field("weight", Kind::Number(1, 100)),
                field("priority", Kind::Number(0, 9)),
                field("meter_type", Kind::Word(&["packets", "bytes"])),
                field("cir", U64),
                field("pir", U64),
                field("cbs", U32),
                field("pbs", U32),
            ],
            needed: &[],
        },
    },
    Table {
        name: "WRED_PROFILE",
        module: "sonic-wred-profile",
        rows: Rows::Keyed {
            keys: LABEL,
            fields: &[
                field("green_min_threshold", U64),
                field("green_max_threshold", U64),
                field("green_drop_probability", PERCENT),
                field("wred_green_enable", Kind::Truth),
                field("yellow_min_threshold", U64),
                field("yellow_max_threshold", U64),
                field("yellow_drop_probability", PERCENT),
                field("wred_yellow_enable", Kind::Truth),
                field("red_min_threshold", U64),
                field("red_max_threshold", U64),
                field("red_drop_probability", PERCENT),
                field("wred_red_enable", Kind::Truth),
                field(
                    "ecn",
                    Kind::Word(&[
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
            needed: &[],
        },
    },
    Table {
        name: "QUEUE",
        module: "sonic-queue",
        rows: Rows::Keyed {
            keys: &[
                field("ifname", Kind::Port("CPU")),
                field("qindex", Kind::Text),
            ],
            fields: &[
                field("scheduler", Kind::Row("SCHEDULER")),
                field("wred_profile", Kind::Row("WRED_PROFILE")),
            ],
            needed: &[],
        },
    },
    Table {
        name: "PORT_QOS_MAP",
        module: "sonic-port-qos-map",
        rows: Rows::Keyed {
            keys: &[field("ifname", Kind::Port("global"))],
            fields: &[
                field("dscp_to_tc_map", Kind::Row("DSCP_TO_TC_MAP")),
                field("dot1p_to_tc_map", Kind::Row("DOT1P_TO_TC_MAP")),
                field("tc_to_queue_map", Kind::Row("TC_TO_QUEUE_MAP")),
                field("tc_to_pg_map", Kind::Row("TC_TO_PRIORITY_GROUP_MAP")),
                field("tc_to_dscp_map", Kind::Row("TC_TO_DSCP_MAP")),
                field("pfc_to_queue_map", Kind::Row("MAP_PFC_PRIORITY_TO_QUEUE")),
                field(
                    "pfc_to_pg_map",
                    Kind::Row("PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"),
                ),
                field("pfc_enable", Kind::Classes),
                field("pfcwd_sw_enable", Kind::Classes),
                field("scheduler", Kind::Row("SCHEDULER")),
            ],
            needed: &[],
        },
    },
    Table {
        name: "BUFFER_POOL",
        module: "sonic-buffer-pool",
        rows: Rows::Keyed {
            keys: NAME,
            fields: &[
                field("type", Kind::Word(&["ingress", "egress", "both"])),
                field("mode", Kind::Word(&["static", "dynamic"])),
                field("size", U64),
                field("xoff", U64),
                field("percentage", Kind::Number(0, 255)),
            ],
            needed: &["type", "mode"],
        },
    },
    Table {
        name: "BUFFER_PROFILE",
        module: "sonic-buffer-profile",
        rows: Rows::Keyed {
            keys: NAME,
            fields: &[
                field("static_th", U64),
                field("dynamic_th", Kind::Number(-8, 7)),
                field("size", U64),
                field("pool", Kind::Row("BUFFER_POOL")),
                field("xon_offset", U64),
                field("xon", U64),
                field("xoff", U64),
                field("headroom_type", Kind::Word(&["static", "dynamic"])),
                field("packet_discard_action", Kind::Word(&["drop", "trim"])),
            ],
            needed: &["pool", "size"],
        },
    },
    Table {
        name: "BUFFER_PG",
        module: "sonic-buffer-pg",
        rows: Rows::Keyed {
            keys: &[
                field("port", Kind::Port("")),
                field("pg_num", Kind::Range(7)),
            ],
            fields: &[field("profile", Kind::RowOr("BUFFER_PROFILE", "NULL"))],
            needed: &["profile"],
        },
    },
    Table {
        name: "BUFFER_QUEUE",
        module: "sonic-buffer-queue",
        rows: Rows::Keyed {
            keys: &[
                field("port", Kind::Port("")),
                field("qindex", Kind::Range(15)),
            ],
            fields: &[field("profile", Kind::Row("BUFFER_PROFILE"))],
            needed: &["profile"],
        },
    },
    Table {
        name: "SWITCH_HASH",
        module: "sonic-hash",
        rows: Rows::Single {
            fields: &[
                field("ecmp_hash", HASH_FIELDS),
                field("lag_hash", HASH_FIELDS),
                field("ecmp_hash_algorithm", HASH_ALGORITHM),
                field("lag_hash_algorithm", HASH_ALGORITHM),
            ],
        },
    },
    Table {
        name: "SWITCH_TRIMMING",
        module: "sonic-trimming",
        rows: Rows::Single {
            fields: &[
                field("size", U32),
                field("dscp_value", Kind::Or(63, "from-tc")),
                field("tc_value", Kind::Number(0, 255)),
                field("queue_index", Kind::Or(255, "dynamic")),
            ],
        },
    },
];
