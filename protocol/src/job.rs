//! Every parameter of a job (placeholder until the parser lands).
#![allow(missing_docs)]
use crate::priority::Policy;
use crate::units::*;
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Holes {
    Rescale,
    Zero,
    Previous,
    ErrorFeedback,
}
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mtu {
    Auto,
    Bytes(u32),
}
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Checksum {
    On,
    Off,
}
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    Auto,
    Direct,
    Ring,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub name: String,
    pub tolerance: Share,
    pub holes: Holes,
    pub transport: Transport,
    pub loss: Loss,
    pub priority: Priority,
    pub collectives: Collectives,
    pub faults: Faults,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Transport {
    pub mtu: Mtu,
    pub window: ByteCount,
    pub initial_window: ByteCount,
    pub unscheduled: ByteCount,
    pub entropies: u8,
    pub spray_burst: u16,
    pub gap: Span,
    pub delay_target: Span,
    pub peer_timeout: Span,
    pub checksum: Checksum,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    pub min_message: ByteCount,
    pub protected_share: Share,
    pub protected_back_layers: Share,
    pub step_tolerance: Option<Share>,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Priority {
    pub dscps: Vec<Dscp>,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Collectives {
    pub algorithm: Algorithm,
    pub chunk: ByteCount,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    pub seed: u64,
    pub drop: Share,
    pub burst: f64,
    pub duplicate: Share,
    pub reorder: Share,
    pub delay: Span,
    pub corrupt: Share,
    pub one_way: Vec<(Rank, Rank)>,
}
impl Default for Job {
    fn default() -> Self {
        let tenth = Share::new(0.1).expect("a share");
        Self {
            name: "job".to_owned(),
            tolerance: Share::NONE,
            holes: Holes::Rescale,
            transport: Transport {
                mtu: Mtu::Auto,
                window: ByteCount::mib(1),
                initial_window: ByteCount::kib(256),
                unscheduled: ByteCount::kib(256),
                entropies: 8,
                spray_burst: 46,
                gap: Span::from_millis(1),
                delay_target: Span::from_millis(2),
                peer_timeout: Span::from_millis(8000),
                checksum: Checksum::On,
            },
            loss: Loss {
                min_message: ByteCount::kib(16),
                protected_share: tenth,
                protected_back_layers: tenth,
                step_tolerance: None,
            },
            priority: Priority {
                dscps: [40, 34, 26, 18, 10, 8, 0].map(Dscp).to_vec(),
            },
            collectives: Collectives {
                algorithm: Algorithm::Auto,
                chunk: ByteCount::mib(4),
            },
            faults: Faults {
                seed: 0,
                drop: Share::NONE,
                burst: 1.0,
                duplicate: Share::NONE,
                reorder: Share::NONE,
                delay: Span::ZERO,
                corrupt: Share::NONE,
                one_way: Vec::new(),
            },
        }
    }
}
impl Job {
    pub fn policy(&self) -> Policy {
        Policy {
            dscps: self.priority.dscps.clone(),
            protected_share: self.loss.protected_share,
            protected_back_layers: self.loss.protected_back_layers,
        }
    }
}
