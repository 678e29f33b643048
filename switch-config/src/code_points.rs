//! Names that DSCPs have (RFC 2474, 2597 and 3246), as command lines take them.

use gradwire_protocol::units::Dscp;

const NAMES: [(&str, u8); 20] = [
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// The DSCP of a name, in lower case.
pub(crate) fn named(name: &str) -> Option<Dscp> {
    let found = NAMES.iter().find(|(known, _)| *known == name);
    found.map(|(_, dscp)| Dscp(*dscp))
}
