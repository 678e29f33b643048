//! The published systems that a cell stands for, and those that stand across the cells.
//!
//! A cell is a way to train, not a copy of a system: the protocol beneath is gradwire's own, except
//! where a switch adds. A cell without a name is one for which none is known here.

use serde::Serialize;

use super::cells::{ExchangePattern, LossBound, ModelPlace, Timing, TrainingCell};

/// The published systems of a legal cell.
pub fn systems(cell: TrainingCell) -> &'static [&'static str] {
    match cell.architecture {
        ModelPlace::Servers => of_servers(cell),
        ModelPlace::AllReduce => of_all_reduce(cell),
        ModelPlace::Gossip => of_gossip(cell),
    }
}

fn of_servers(cell: TrainingCell) -> &'static [&'static str] {
    use ExchangePattern::{Hierarchical, InNetwork, Star};
    use LossBound::{Bounded, Lossless};
    use Timing::{Asynchronous, BoundedStale, Synchronous};

    match (cell.timing, cell.pattern, cell.loss) {
        (Synchronous, Star, Lossless) => &["parameter server (Li 2014)", "ByteScheduler", "P3"],
        (Synchronous, Star, Bounded) => &["DLCP", "MLT"],
        (BoundedStale, Star, Lossless) => &["SSP (Ho 2013)", "Petuum"],
        (Asynchronous, Star, Lossless) => &["DistBelief (Downpour SGD)", "Hogwild, over a network"],
        (Synchronous, Hierarchical, Lossless) => &["BytePS"],
        (BoundedStale, Hierarchical, Lossless) => &["Gaia"],
        (Asynchronous, Hierarchical, Lossless) => &["BytePS, asynchronous"],
        (Synchronous, InNetwork, Lossless) => &["ATP"],
        _ => &[],
    }
}

fn of_all_reduce(cell: TrainingCell) -> &'static [&'static str] {
    use ExchangePattern::{HalvingDoubling, Hierarchical, InNetwork, Ring, Star};
    use LossBound::{Bounded, Lossless};
    use Timing::{BoundedStale, Synchronous};

    match (cell.timing, cell.pattern, cell.loss) {
        (Synchronous, Star, Lossless) => &["CaSync-PS of HiPress, without its codec"],
        (Synchronous, Star, Bounded) => &["OptiReduce", "DLCP and MLT, without servers"],
        (Synchronous, Ring, Lossless) => &["Horovod", "NCCL's ring"],
        (Synchronous, HalvingDoubling, Lossless) => &["Rabenseifner's algorithm", "Gloo"],
        (Synchronous, Hierarchical, Lossless) => {
            &["Horovod, hierarchical", "HiTopKComm, without its codec"]
        }
        (Synchronous, InNetwork, Lossless) => &["SwitchML", "NetReduce"],
        (BoundedStale, Ring, Lossless) => &["Pipe-SGD"],
        _ => &[],
    }
}

fn of_gossip(cell: TrainingCell) -> &'static [&'static str] {
    use ExchangePattern::{HalvingDoubling, Hierarchical, Ring, Star};
    use LossBound::{Bounded, Lossless};
    use Timing::{Asynchronous, BoundedStale, Synchronous};

    match (cell.timing, cell.pattern, cell.loss) {
        (Synchronous, Star, Lossless) => &["EASGD"],
        (Asynchronous, Star, Lossless) => &["EASGD, asynchronous"],
        (Synchronous, Ring, Lossless) => &["D-PSGD"],
        (BoundedStale, Ring, Lossless) => &["Hop"],
        (Asynchronous, Ring, Lossless) => &["AD-PSGD"],
        (Synchronous, Ring, Bounded) => &["Soft-DSGD"],
        (Synchronous, HalvingDoubling, Lossless) => &["GossipGraD", "SGP"],
        (BoundedStale, HalvingDoubling, Lossless) => &["SGP, overlapped"],
        (Asynchronous, Hierarchical, Lossless) => &["H-ADPSGD"],
        _ => &[],
    }
}

/// A system that changes a part of several cells.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CrossingSystem {
    /// Its published name.
    pub name: &'static str,
    /// The part that it changes, in words.
    pub changes: &'static str,
    /// A command or a call that runs it here.
    pub command: &'static str,
}

/// The systems that change a part of several cells.
pub const CROSSING: [CrossingSystem; 13] = [
    CrossingSystem {
        name: "DLCP, MLT",
        changes: "tags by layer and magnitude, and the tolerance of every cell with bounded loss",
        command: "gradwire eval dlcp --quick",
    },
    CrossingSystem {
        name: "ByteScheduler",
        changes: "the order and the credit of messages, with servers and with all-reduces",
        command: "gradwire tune schedule single:16@25G step:vgg16:ps=8,scale=16",
    },
    CrossingSystem {
        name: "HiPress",
        changes: "values, by codecs between hosts, and the plan of which tensors gain from one",
        command: "gradwire tune codec --model vgg19 --servers 4 --bandwidth 10G",
    },
    CrossingSystem {
        name: "MSTopK, HiTopKComm",
        changes: "values, by top-k between hosts",
        command: "gradwire perf all-reduce --codec topk -n 2 -b 1M -e 1M",
    },
    CrossingSystem {
        name: "Adasum",
        changes: "the sum of an all-reduce",
        command: "gradwire.ddp.register(model, reduce=\"adasum\")",
    },
    CrossingSystem {
        name: "CrossoverScheduler",
        changes: "the turns of two jobs on the same ranks",
        command: "gradwire sim run single:8@10G step:resnet50:ddp,scale=64,beside=resnet50",
    },
    CrossingSystem {
        name: "SUMMA2.5",
        changes: "the model, sharded over rows, columns and layers of hosts: no data parallelism",
        command: "gradwire sim run fat-tree:k=4@100G step:gpt2:summa=2x2x4,steps=1,scale=16",
    },
    CrossingSystem {
        name: "FT, TensorOpt",
        changes: "how each block is split over devices: time against memory",
        command: "gradwire model plan vgg16 --devices 8 --memory 3GB --link 25G",
    },
    CrossingSystem {
        name: "regenerating codes (MBR, MSR), Reed-Solomon",
        changes: "what the servers keep of each other, to rebuild one that is lost",
        command: "gradwire tune redundancy --servers 10",
    },
    CrossingSystem {
        name: "dPRO",
        changes: "nothing: it replays a run and says which change would pay",
        command: "gradwire trace replay events --whatif bandwidth=x2",
    },
    CrossingSystem {
        name: "SwitchML, ATP, NetReduce",
        changes: "the host that adds",
        command: "gradwire sim compare single:6@100G all-reduce:1MB --transports switchml,atp",
    },
    CrossingSystem {
        name: "IRN, RoCE",
        changes: "the transport beneath, as a reference",
        command: "gradwire sim compare fat-tree:k=4@40G permutation:1MB --transports irn,roce-pfc",
    },
    CrossingSystem {
        name: "DCTCP, Swift, PIAS, pFabric, NDP, EQDS, NSCC, RCCC",
        changes: "the transport and the switches beneath, as references",
        command: "gradwire sim compare fat-tree:k=4@100G permutation:1MB \
                  --transports dctcp,swift,pias,pfabric,ndp,eqds,nscc,rccc",
    },
];
