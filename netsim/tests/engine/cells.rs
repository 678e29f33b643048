//! Temporary: cells before and after.
use crate::world::{lines, run, took, micros, tolerant, fabric, pattern, setup, dropped};
use gradwire_netsim::setup::Setup;
#[test]
fn cells() {
    let cells: &[(&str, &str, bool)] = &[
        ("leaf-spine:4x8x2@100G", "permutation:4MB", false),
        ("leaf-spine:4x8x2@100G", "permutation:4MB", true),
        ("leaf-spine:2x8x2@25G,loss=1%", "ring:8MiB", false),
    ];
    for (shape, text, tol) in cells {
        for seed in 1..=2 {
            let mut s = lines(shape, text, seed);
            if *tol { s = tolerant(s); }
            let o = run(&s);
            let e = o.tasks.iter().filter_map(|t| t.ended).max().map_or(0.0, |at| micros(at.since(gradwire_protocol::units::Instant::START)));
            let t: Vec<f64> = o.flows.iter().filter(|f| f.received.is_some()).map(|f| micros(took(f))).collect();
            let mean = t.iter().sum::<f64>() / t.len() as f64;
            let max = t.iter().copied().fold(0.0, f64::max);
            println!("CELL {shape} {text} {tol} {seed}: mean {mean:.1} max {max:.1} ended {e:.1} drops {}", dropped(&o));
        }
    }
    let _ = (fabric, pattern, setup as fn(_, _) -> Setup);
}
