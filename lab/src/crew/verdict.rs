//! Checks the results of all ranks together. Counters alone are not trusted: elements are compared
//! with the exact ones, and with the counted losses.

use gradwire_protocol::job::Job;

use super::ELEMENT_BYTES;
use super::kind::PerfCollective;
use super::messages::Measured;
use super::rounds::RoundSeries;

/// The faults of our ranks, one line each; empty when everything is right.
pub fn faults(kind: PerfCollective, bytes: u64, series: &RoundSeries, job: &Job) -> Vec<String> {
    let found = series
        .parts()
        .flat_map(|part| faults_of_round(kind, part, job));
    found
        .map(|fault| format!("{bytes} bytes: {fault}"))
        .collect()
}

/// The faults that a rival's ranks report, if they check results.
pub fn faults_of_rival(name: &str, bytes: u64, series: &RoundSeries) -> Option<String> {
    let wrong: u64 = series
        .parts()
        .flatten()
        .map(|rank| rank.wrong_elements)
        .sum();
    (wrong > 0).then(|| format!("{bytes} bytes: {wrong} elements of {name} are not exact"))
}

/// The faults of one round.
pub fn faults_of_round(kind: PerfCollective, ranks: &[Measured], job: &Job) -> Vec<String> {
    let mut faults = Vec::new();
    let total = |count: fn(&Measured) -> u64| ranks.iter().map(count).sum::<u64>();
    for (rank, measured) in ranks.iter().enumerate() {
        if measured.wrong_elements > 0 {
            let count = measured.wrong_elements;
            faults.push(format!(
                "{count} elements on rank {rank} are not a sum of contributions"
            ));
        }
        if measured.hashes != ranks[0].hashes {
            faults.push(format!("rank {rank} has a different result from rank 0"));
        }
        // Patience gives up whole messages, within what the sum tolerates.
        let is_patience_endless = job.collectives.patience.is_none();
        if is_patience_endless && measured.max_lost_share > job.tolerance.get() {
            let share = measured.max_lost_share * 100.0;
            faults.push(format!(
                "a message to rank {rank} lost {share:.2}% of its segments"
            ));
        }
        let (ledger, messages) = (
            measured.ledger_lost_segments,
            measured.operations_lost_segments,
        );
        if ledger != messages || measured.lost_segments != messages {
            faults.push(format!(
                "rank {rank}: the ledger counts {ledger} lost segments, its messages {messages}"
            ));
        }
    }
    let segment_elements = ranks[0].segment_bytes / ELEMENT_BYTES;
    let explained = total(|rank| rank.lost_segments) * segment_elements;
    let estimated = match kind {
        // All ranks have the same result, or another fault says that they have not.
        PerfCollective::AllReduce => ranks[0].estimated_elements,
        _ => total(|rank| rank.estimated_elements),
    };
    if estimated > explained {
        faults.push(format!(
            "{estimated} elements are not exact, but lost segments explain only {explained}"
        ));
    }
    faults.extend(early_leavers(ranks));
    faults
}

/// Ranks that left a barrier before the last one came.
fn early_leavers(ranks: &[Measured]) -> Option<String> {
    let barriers = ranks.iter().map(|rank| rank.barrier_ns.len()).min()?;
    let left_early = |at: &usize| {
        let times = ranks.iter().map(|rank| rank.barrier_ns[*at]);
        let last_came = times.clone().map(|(came, _)| came).max();
        let first_left = times.map(|(_, left)| left).min();
        first_left < last_came
    };
    let count = (0..barriers).filter(left_early).count();
    (count > 0).then(|| format!("{count} barriers released a rank before all had entered"))
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Share;

    use super::*;

    fn faults_with(change: impl FnOnce(&mut Measured)) -> Vec<String> {
        let sound = Measured {
            hashes: vec![7],
            lost_segments: 2,
            ledger_lost_segments: 2,
            operations_lost_segments: 2,
            estimated_elements: 100,
            max_lost_share: 0.1,
            segment_bytes: 1024,
            ..Measured::default()
        };
        let mut other = sound.clone();
        change(&mut other);
        let job = Job {
            tolerance: Share::new(0.1).expect("a share"),
            ..Job::default()
        };
        faults_of_round(PerfCollective::AllReduce, &[sound, other], &job)
    }

    #[test]
    fn sound_results_have_no_fault() {
        assert_eq!(faults_with(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn every_broken_promise_is_named() {
        assert!(faults_with(|rank| rank.wrong_elements = 1)[0].contains("on rank 1 are not a sum"));
        assert!(faults_with(|rank| rank.hashes = vec![8])[0].contains("a different result"));
        assert!(faults_with(|rank| rank.max_lost_share = 0.11)[0].contains("lost 11.00%"));
        assert!(faults_with(|rank| rank.ledger_lost_segments = 1)[0].contains("counts 1"));
    }

    #[test]
    fn estimates_beyond_lost_segments_are_a_fault() {
        let faults = |kind, estimated_elements| {
            let rank = Measured {
                estimated_elements,
                lost_segments: 1,
                ledger_lost_segments: 1,
                operations_lost_segments: 1,
                segment_bytes: 1024,
                ..Measured::default()
            };
            faults_of_round(kind, &[rank.clone(), rank], &Job::default()).len()
        };
        assert_eq!(faults(PerfCollective::AllReduce, 512), 0);
        assert_eq!(faults(PerfCollective::AllReduce, 513), 1);
        assert_eq!(faults(PerfCollective::ReduceScatter, 256), 0);
        assert_eq!(faults(PerfCollective::ReduceScatter, 257), 1);
    }

    #[test]
    fn a_rank_that_leaves_a_barrier_early_is_found() {
        let faults = |left| {
            let rank = |barrier_ns| Measured {
                barrier_ns: vec![barrier_ns],
                ..Measured::default()
            };
            let ranks = [rank((10, left)), rank((20, 30))];
            faults_of_round(PerfCollective::Barrier, &ranks, &Job::default())
        };
        assert_eq!(faults(20), Vec::<String>::new());
        assert!(faults(19)[0].contains("1 barriers released a rank"));
    }
}
