//! This script does nothing: cargo regards build dependencies, for their features, only if there is
//! a script.

fn main() {}
