//! Nothing to do: cargo regards build dependencies, for their features, where there is a script.

fn main() {}
