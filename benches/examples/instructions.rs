//! All-reduces for an instruction counter: ranks, bytes, buckets at once, repetitions.
//!
//! ```text
//! cargo build --release -p gradwire-benches --example instructions
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*group::counted*' \
//!     target/release/examples/instructions 2 4096 1 1000
//! ```

use gradwire_benches::group::Ranks;
use gradwire_protocol::job::Job;

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|text| text.parse().expect("a number"))
        .collect();
    let &[count, bytes, buckets, repetitions] = numbers.as_slice() else {
        println!("usage: instructions RANKS BYTES BUCKETS REPETITIONS");
        return;
    };
    let mut ranks = Ranks::new(count as u16, &Job::default());
    let packets: u64 = (0..repetitions)
        .map(|_| ranks.all_reduce(bytes, buckets as u16))
        .sum();
    let operations = (repetitions * buckets * count) as u64;
    println!("{operations} operations of a rank, {packets} packets");
}
