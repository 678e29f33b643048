//! The content of a file of layers, line by line.

use gradwire_protocol::units::{ByteCount, Span};

use crate::fault::TextError;
use crate::words::{NumberedLine, did_you_mean, lines};
use crate::workload::CollectiveKind;

/// How the ranks divide the work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Strategy {
    Data,
    Model,
    DataModel,
    ModelData,
    Transformer,
    Dlrm,
    Customized,
    Micro,
    Inference,
}

const STRATEGIES: [(&str, Strategy); 11] = [
    ("DATA", Strategy::Data),
    ("MODEL", Strategy::Model),
    ("HYBRID_DATA_MODEL", Strategy::DataModel),
    ("HYBRID_MODEL_DATA", Strategy::ModelData),
    ("HYBRID_TRANSFORMER", Strategy::Transformer),
    ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", Strategy::Transformer),
    ("HYBRID_DLRM", Strategy::Dlrm),
    ("HYBRID_DLRM_ENHANCED", Strategy::Dlrm),
    ("HYBRID_CUSTOMIZED", Strategy::Customized),
    ("MICRO", Strategy::Micro),
    ("DISTRIBUTED_INFERENCE", Strategy::Inference),
];
/// The first strategies can be those of a single layer, too.
const OF_A_LAYER: usize = 3;
const COLLECTIVES: [(&str, CollectiveKind); 5] = [
    ("ALLREDUCE", CollectiveKind::AllReduce),
    ("ALLGATHER", CollectiveKind::AllGather),
    ("REDUCESCATTER", CollectiveKind::ReduceScatter),
    ("ALLTOALL", CollectiveKind::AllToAll),
    ("BROADCAST", CollectiveKind::Broadcast { root: 0 }),
];
const TENSOR: &str = "model_parallel_NPU_group";
const LAST_BOTTOM: &str = "DLRM_LAST_BOTTOM_LAYER";
const CHECKPOINTS: &str = "checkpoints";
const INITIATES: &str = "checkpoint_initiates";
const KEYS: [&str; 10] = [
    TENSOR,
    "ep",
    "pp",
    "vpp",
    "ga",
    "all_gpus",
    "pp_comm",
    CHECKPOINTS,
    INITIATES,
    LAST_BOTTOM,
];
const COLUMNS: &str = "name, dependency, compute, collective and bytes of the forward pass, of the \
                       input gradient and of the weight gradient, update time, and with \
                       HYBRID_CUSTOMIZED a strategy";
const WHOLE: &str = "a whole number from 0";
const FROM_ONE: &str = "a whole number from 1";

/// The content of a file.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) strategy: Strategy,
    pub(super) keys: Keys,
    pub(super) layers: Vec<FileLayer>,
}

/// The keys after the strategy that the simulator uses.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// Ranks of a tensor-parallel group.
    pub(super) tensor: u32,
    /// Ranks of an expert-parallel group.
    pub(super) experts: u32,
    /// Stages of the pipeline.
    pub(super) stages: u32,
    /// Ranks that the file is made for.
    pub(super) ranks: Option<u32>,
    pub(super) last_bottom: usize,
    checkpoints: Vec<usize>,
    initiates: Vec<usize>,
}

/// A line of the file.
#[derive(Clone, Debug)]
pub(super) struct FileLayer {
    /// Number of its line.
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) forward: Pass,
    pub(super) input: Pass,
    pub(super) weight: Pass,
    pub(super) update: Span,
    /// Its own strategy, or that of the file.
    pub(super) strategy: Strategy,
    /// The layer from which the forward pass restarts before this one's backward pass.
    pub(super) again_from: Option<usize>,
}

/// One direction of a layer: its computing and its collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) compute: Span,
    pub(super) collective: Option<LayerCollective>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LayerCollective {
    pub(super) kind: CollectiveKind,
    pub(super) bytes: ByteCount,
    pub(super) scope: Scope,
}

/// The participants, by the ending of the collective's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scope {
    /// As the strategy says.
    Plain,
    /// `_EP`: the ranks that share the experts of a layer.
    Experts,
    /// `_DP_EP`: the ranks that hold the same experts.
    SameExperts,
}

impl File {
    pub(super) fn parse(text: &str) -> Result<Self, TextError> {
        let mut lines = lines(text);
        let (strategy, keys) = match lines.next() {
            Some(line) => header(&line)?,
            None => header(&NumberedLine {
                number: 1,
                words: vec![""],
            })?,
        };
        let (line, said) = match lines.next() {
            Some(line) => (line.number, number(&line, 0, "layers", FROM_ONE)?),
            None => (2, 0),
        };
        let layers: Vec<FileLayer> = lines
            .map(|line| layer(&line, strategy))
            .collect::<Result<_, _>>()?;
        let found = layers.len();
        if said != found || found == 0 || found > usize::from(u16::MAX) {
            return Err(TextError::Whole(format!(
                "line {line} says {said} layers, the file has {found}: correct one of them"
            )));
        }
        let mut file = Self {
            strategy,
            keys,
            layers,
        };
        file.settle_tensor_parallelism()?;
        file.settle_named_layers()?;
        Ok(file)
    }

    /// Takes one rank per group if the file sets no size and no layer asks for groups.
    fn settle_tensor_parallelism(&mut self) -> Result<(), TextError> {
        let divided = [
            Strategy::DataModel,
            Strategy::ModelData,
            Strategy::Transformer,
        ];
        let divides = self
            .layers
            .iter()
            .any(|layer| divided.contains(&layer.strategy));
        if divides && self.keys.tensor == 0 {
            let rule =
                format!("this strategy needs `{TENSOR}: N` behind it, how many ranks a group has");
            return Err(TextError::line(1, rule));
        }
        self.keys.tensor = self.keys.tensor.max(1);
        Ok(())
    }

    fn settle_named_layers(&mut self) -> Result<(), TextError> {
        let count = self.layers.len();
        let last_bottom = vec![self.keys.last_bottom];
        let wrong = |key: &str, layer: usize, rule: &str| {
            TextError::line(1, format!("layer {layer} of `{key}`: {rule}"))
        };
        let named = [
            (CHECKPOINTS, &self.keys.checkpoints),
            (INITIATES, &self.keys.initiates),
            (LAST_BOTTOM, &last_bottom),
        ];
        for (key, layers) in named {
            if let Some(&layer) = layers.iter().find(|layer| **layer >= count) {
                return Err(wrong(key, layer, "there is no such layer; the first is 0"));
            }
        }
        for &layer in &self.keys.initiates {
            let before = self.keys.checkpoints.iter().filter(|it| **it <= layer);
            let nearest = before.max().copied();
            let nearest = nearest
                .ok_or_else(|| wrong(INITIATES, layer, "no layer up to it is a checkpoint"))?;
            self.layers[layer].again_from = Some(nearest);
        }
        Ok(())
    }
}

fn header(line: &NumberedLine<'_>) -> Result<(Strategy, Keys), TextError> {
    let strategy = strategy_named(line.words[0], line.number, &STRATEGIES)?;
    let mut keys = Keys {
        tensor: 0,
        experts: 1,
        stages: 1,
        ranks: None,
        last_bottom: 0,
        checkpoints: Vec::new(),
        initiates: Vec::new(),
    };
    let mut at = 1;
    while let Some(word) = line.words.get(at) {
        at += 1;
        let one = |key, allowed| number(line, at, key, allowed);
        match word.trim_end_matches(':') {
            TENSOR => keys.tensor = one(TENSOR, FROM_ONE)?,
            "ep" => keys.experts = one("ep", FROM_ONE)?,
            "pp" => keys.stages = one("pp", FROM_ONE)?,
            "all_gpus" => keys.ranks = Some(one("all_gpus", FROM_ONE)?),
            LAST_BOTTOM => keys.last_bottom = number(line, at, LAST_BOTTOM, WHOLE)?,
            "vpp" | "ga" | "pp_comm" => {
                number::<u64>(line, at, "vpp, ga or pp_comm", WHOLE)?;
            }
            CHECKPOINTS => keys.checkpoints = listed(line, &mut at, CHECKPOINTS)?,
            INITIATES => keys.initiates = listed(line, &mut at, INITIATES)?,
            given => {
                let (nearest, known) = (did_you_mean(given, KEYS), KEYS.join(", "));
                let rule = format!("unknown key `{given}`{nearest}; known keys are {known}");
                return Err(TextError::line(line.number, rule));
            }
        }
        at += 1;
    }
    Ok((strategy, keys))
}

/// Reads a count and as many layers; leaves `at` on the last one.
fn listed(line: &NumberedLine<'_>, at: &mut usize, key: &str) -> Result<Vec<usize>, TextError> {
    let count: usize = number(
        line,
        *at,
        key,
        "how many layers there are, and these layers",
    )?;
    let first = *at + 1;
    let mut layers = Vec::new();
    for place in first..first.saturating_add(count) {
        layers.push(number(line, place, key, "as many layers as announced")?);
        *at = place;
    }
    Ok(layers)
}

fn layer(line: &NumberedLine<'_>, strategy: Strategy) -> Result<FileLayer, TextError> {
    let needed = 12 + usize::from(strategy == Strategy::Customized);
    let found = line.words.len();
    if found != needed {
        let rule = format!("{found} columns; a layer has {needed}: {COLUMNS}");
        return Err(TextError::line(line.number, rule));
    }
    let own = match line.words.get(12) {
        Some(name) => strategy_named(name, line.number, &STRATEGIES[..OF_A_LAYER])?,
        None => strategy,
    };
    Ok(FileLayer {
        line: line.number,
        name: line.words[0].to_owned(),
        forward: pass(line, 2)?,
        input: pass(line, 5)?,
        weight: pass(line, 8)?,
        update: Span::from_nanos(number(line, 11, "update time", WHOLE)?),
        strategy: own,
        again_from: None,
    })
}

fn pass(line: &NumberedLine<'_>, first: usize) -> Result<Pass, TextError> {
    let compute = Span::from_nanos(number(line, first, "compute time", WHOLE)?);
    let bytes = ByteCount::new(number(line, first + 2, "bytes", WHOLE)?);
    let collective = match line.words[first + 1] {
        "NONE" => None,
        name => {
            let (kind, scope) = collective_named(name, line.number)?;
            Some(LayerCollective { kind, bytes, scope })
        }
    };
    Ok(Pass {
        compute,
        collective: collective.filter(|_| bytes.get() > 0),
    })
}

fn collective_named(given: &str, line: usize) -> Result<(CollectiveKind, Scope), TextError> {
    let (name, scope) = if let Some(name) = given.strip_suffix("_DP_EP") {
        (name, Scope::SameExperts)
    } else if let Some(name) = given.strip_suffix("_EP") {
        (name, Scope::Experts)
    } else {
        (given, Scope::Plain)
    };
    let known = COLLECTIVES.iter().find(|(known, _)| *known == name);
    let names = COLLECTIVES.map(|(name, _)| name);
    let kind = known.map(|(_, kind)| *kind);
    let kind = kind.ok_or_else(|| {
        let (nearest, known) = (did_you_mean(name, names), names.join(", "));
        let rule = format!(
            "`{given}`{nearest} is not a collective; known are NONE, {known}, with _EP or _DP_EP \
             behind it or not"
        );
        TextError::line(line, rule)
    })?;
    Ok((kind, scope))
}

fn strategy_named(
    given: &str,
    line: usize,
    allowed: &[(&'static str, Strategy)],
) -> Result<Strategy, TextError> {
    let known = allowed.iter().find(|(known, _)| *known == given);
    let strategy = known.map(|(_, strategy)| *strategy);
    strategy.ok_or_else(|| {
        let names: Vec<&str> = allowed.iter().map(|(name, _)| *name).collect();
        let nearest = did_you_mean(given, names.iter().copied());
        let known = names.join(", ");
        let rule = format!("`{given}`{nearest} is not a strategy; known are {known}");
        TextError::line(line, rule)
    })
}

fn number<T: std::str::FromStr + PartialEq + Default>(
    line: &NumberedLine<'_>,
    place: usize,
    key: &str,
    allowed: &str,
) -> Result<T, TextError> {
    let given = line.words.get(place).copied().unwrap_or("");
    let number = given.parse().ok();
    let number = number.filter(|number| allowed != FROM_ONE || *number != T::default());
    number.ok_or_else(|| TextError::value(line.number, key, given, allowed))
}
