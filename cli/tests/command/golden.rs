//! The output of `gradwire switch render`, byte for byte, so that reviews show its changes.
//!
//! Each file of `switch-config/tests/golden` is the default job on two ports of a leaf of
//! `examples/fabrics/leaf-spine-oversubscribed.toml`; the name of a file begins with its platform.

use std::fs;
use std::path::Path;

use crate::processes::{errors, run};

/// Platform, ports, file.
const GOLDEN: [(&str, &str, &str); 1] = [("sonic", "Ethernet0,Ethernet4", "sonic.json")];

#[test]
fn configurations_are_what_was_reviewed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let fabric = root.join("examples/fabrics/leaf-spine-oversubscribed.toml");
    let fabric = fabric.to_str().expect("a plain path");
    for (platform, ports, name) in GOLDEN {
        let options = ["--platform", platform, "default", fabric, "--ports", ports];
        let output = run(&[&["switch", "render"], &options[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let printed = String::from_utf8_lossy(&output.stdout);
        let path = root.join("switch-config/tests/golden").join(name);
        let golden = fs::read_to_string(&path).expect("it is there");
        assert_eq!(
            printed,
            golden,
            "if this is meant, write it anew: gradwire switch render {} > {}",
            options.join(" "),
            path.display()
        );
    }
}
