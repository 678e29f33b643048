//! `gradwire aggregate`: the aggregator of in-network sums in the foreground.

pub mod options;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gradwire_lab::crew::leash;
use gradwire_runtime::aggregator::{AggregatorOpening, NetworkAggregator};
use serde_json::json;

use crate::environment::Environment;
use crate::exit::CommandError;
use crate::job;
use options::Aggregate;

/// Time between two looks for ranks that come and go.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Sums until it is ended.
///
/// # Errors
/// [`CommandError`] when it cannot be opened, or its sockets fail.
pub fn run(options: &Aggregate) -> Result<(), CommandError> {
    let told = Environment::read().token().map_err(CommandError::Usage)?;
    let mut job = job::given_or_default(options.job.as_ref())?;
    job.faults.drop = options.drop.unwrap_or(job.faults.drop);
    job::say_if_unprotected(&job);
    let mut aggregator = NetworkAggregator::open(AggregatorOpening {
        job,
        listen: options.listen,
        token: options.token.clone().or(told).unwrap_or_default(),
    })?;
    println!("{}", json!({ "aggregator": aggregator.address() }));
    let is_over = Arc::new(AtomicBool::new(false));
    if options.until_input_ends {
        let over = Arc::clone(&is_over);
        leash::when_input_ends(move || over.store(true, Ordering::Relaxed));
    }
    while !is_over.load(Ordering::Relaxed) {
        aggregator.poll()?;
        std::thread::sleep(LOOK_EVERY);
    }
    let counts = aggregator.counts();
    println!(
        "{}",
        json!({
            "added_packets": counts.added,
            "summed_packets": counts.sums,
            "repeated_packets": counts.repeated,
            "refused_packets": counts.refused,
        })
    );
    Ok(())
}
