//! Log lines about faults of paths: the symptom, and the remedy.

use gradwire_protocol::path::PathFault;
use gradwire_protocol::units::Rank;

/// IPv4 and UDP headers, which the job's MTU includes.
const IP_AND_UDP: u64 = 28;

/// The line about a fault of the path to or from a rank.
pub(crate) fn line(rank: Rank, fault: PathFault) -> String {
    match fault {
        PathFault::LosesMost { lost, of } => format!(
            "the path to rank {rank} lost {lost} of {of} packets in a second, for seconds: this \
             rank sends it one packet per 100 ms until that ends; run `gradwire doctor` on both \
             hosts"
        ),
        PathFault::FullPacketsVanish { bytes } => format!(
            "no packet of {bytes} bytes arrives at rank {rank} (an IP packet of {} bytes or more), \
             while smaller ones do: a link on the path takes less than the interfaces of the \
             hosts; set transport.mtu to the size that `gradwire doctor` finds, such as 1400",
            bytes + IP_AND_UDP
        ),
        PathFault::LongPacketsLost { bytes, lasting } => format!(
            "no packet of {bytes} bytes has arrived at rank {rank} for {lasting}, while smaller \
             ones do: this rank ends the job"
        ),
        PathFault::MarksEverything => format!(
            "the path to rank {rank} marks every packet (ECN CE) though no queue delays them: \
             marks are ignored; look for a switch whose threshold is 0"
        ),
        PathFault::ClearsEcn => format!(
            "the path from rank {rank} clears ECN: no queue there can mark, so congestion shows \
             by delay and loss only; `gradwire doctor` names the traffic classes that it clears"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_black_hole_names_the_rank_the_size_and_the_remedy() {
        let told = line(Rank(3), PathFault::FullPacketsVanish { bytes: 8972 });
        let named = ["rank 3", "9000 bytes", "transport.mtu"];
        assert!(named.iter().all(|part| told.contains(part)), "{told}");
    }
}
