//! What the results of all ranks together must fulfil. Nothing here trusts the counters alone:
//! elements are compared with the exact sums, and with what was counted as lost.

use gradwire_protocol::job::Job;

use super::ELEMENT_BYTES;
use super::messages::Measured;
use super::table::Row;

/// What is wrong with a row, one line each; nothing when everything is right.
pub fn faults(row: &Row, job: &Job) -> Vec<String> {
    let found = row.parts.iter().flat_map(|part| faults_of_round(part, job));
    found
        .map(|fault| format!("{}: {fault}", row.bytes))
        .collect()
}

fn faults_of_round(ranks: &[Measured], job: &Job) -> Vec<String> {
    let mut faults = Vec::new();
    let total = |count: fn(&Measured) -> u64| ranks.iter().map(count).sum::<u64>();
    for (rank, measured) in ranks.iter().enumerate() {
        if measured.wrong_elements > 0 {
            let count = measured.wrong_elements;
            faults.push(format!(
                "{count} elements on rank {rank} are no sum of contributions"
            ));
        }
        if measured.hashes != ranks[0].hashes {
            faults.push(format!("rank {rank} has another result than rank 0"));
        }
        if measured.max_lost_share > job.tolerance.get() {
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
    let estimated = ranks[0].estimated_elements;
    if estimated > explained {
        faults.push(format!(
            "{estimated} elements are not exact, but lost segments explain only {explained}"
        ));
    }
    faults
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::{ByteCount, Share};

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
        let row = Row::new(
            2,
            ByteCount::kib(4),
            vec![vec![sound, other]],
            (vec![1.0], vec![]),
        );
        faults(&row, &job)
    }

    #[test]
    fn sound_results_have_no_fault() {
        assert_eq!(faults_with(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn every_broken_promise_is_named() {
        assert!(faults_with(|rank| rank.wrong_elements = 1)[0].contains("on rank 1 are no sum"));
        assert!(faults_with(|rank| rank.hashes = vec![8])[0].contains("another result"));
        assert!(faults_with(|rank| rank.max_lost_share = 0.11)[0].contains("lost 11.00%"));
        assert!(faults_with(|rank| rank.ledger_lost_segments = 1)[0].contains("counts 1"));
    }

    #[test]
    fn more_estimated_elements_than_lost_segments_hold_is_a_fault() {
        let row = |estimated_elements| {
            let rank = Measured {
                estimated_elements,
                segment_bytes: 1024,
                ..Measured::default()
            };
            Row::new(
                2,
                ByteCount::kib(4),
                vec![vec![rank; 2]],
                (vec![1.0], vec![]),
            )
        };
        assert_eq!(faults(&row(0), &Job::default()), Vec::<String>::new());
        assert_eq!(faults(&row(1), &Job::default()).len(), 1);
    }
}
