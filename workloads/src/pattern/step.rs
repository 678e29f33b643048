//! Training steps in one line: `vgg16:ddp,steps=3,slow=1.5`.

use std::ops::RangeInclusive;

use gradwire_fabric::settings;
use gradwire_protocol::job::{ReduceAlgorithm, notation};
use gradwire_protocol::units::ByteCount;

use super::{PatternError, PatternLine, STEP};
use crate::model::Model;
use crate::training::{
    BUCKET_BYTES, CodecTime, CodecUnit, GradientExchange, MixedPlanError, Overlap, Partners, Parts,
    ProductGrid, Staleness, TensorLine, Training, Update,
};
use crate::words::did_you_mean;
use crate::workload::Workload;

const STEPS: u32 = 3;
const STEPS_MAX: u32 = 100;
const SCALE_MAX: u32 = 1_000_000;
/// Minimum and maximum bytes of a part.
const PART_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 30;
const SLOW_MAX: f64 = 100.0;
const STALE_MAX: u32 = 100;
const TEAM_MAX: u32 = 1_024;
const KEYS: [&str; 15] = [
    "steps",
    "slow",
    "update",
    "overlap",
    "stale",
    "team",
    "beside",
    "bucket",
    "algorithm",
    "part",
    "codec",
    "codec_on",
    "scale",
    "tokens",
    "samples",
];
/// Tokens in a host's share of the batch, where matrices are sharded.
const TOKENS: u32 = 1_024;
const TOKENS_MAX: u32 = 1 << 20;
/// Most samples of a host's share of the batch, where a plan says how blocks are run.
const SAMPLES_MAX: u32 = 1 << 20;
/// Most hosts that share matrices.
const GRID_MAX: u32 = 4_096;

/// Returns the model in the text after `step:`.
pub(super) fn model_of(rest: &str) -> &str {
    let (subject, _) = rest.split_once(',').unwrap_or((rest, ""));
    subject
        .rsplit_once(':')
        .map_or(subject, |(model, _)| model)
        .trim()
}

impl PatternLine<'_> {
    pub(super) fn step(&self, rest: &str) -> Result<Workload, PatternError> {
        let (subject, options) = match rest.split_once(',') {
            None => (rest, None),
            Some((subject, options)) => (subject, Some(options)),
        };
        let how = subject.rsplit_once(':').map(|(_, how)| how.trim());
        let how = how.ok_or_else(|| self.form(STEP, "it needs model:how"))?;
        let mut training = Training {
            exchange: self.exchange(how)?,
            model: self.model(model_of(rest))?,
            parts: Parts::default(),
            update: Update::Layer,
            bucket: BUCKET_BYTES,
            overlap: Overlap::Backward,
            beside: None,
            staleness: Staleness::Steps(0),
            team: 1,
            steps: STEPS,
            straggling: 1.0,
            algorithm: None,
            codec: None,
            scale: 1,
        };
        for option in options.into_iter().flat_map(|options| options.split(',')) {
            self.option(&mut training, option)?;
        }
        self.needs_hosts(u64::from(training.least_hosts()))?;
        if self.hosts.count > training.most_hosts() {
            return Err(self.form(STEP, self.too_many_hosts(&training)));
        }
        if let GradientExchange::Mixed { plan, .. } = &training.exchange {
            let model = &training.model;
            let checked = plan.check(&model.name, &model.blocks());
            checked.map_err(|error| self.form(STEP, format!("plan={plan}: {error}")))?;
        }
        if let Some(misfit) = training.misfit(self.hosts.count) {
            return Err(self.form(STEP, misfit));
        }
        if let Some(what) = training.no_matrices() {
            return Err(self.form(STEP, format!("{} {what}", training.model.name)));
        }
        if training.codec.is_some() && !training.sums_at_once() {
            let what = "codec= is for ddp and tensors, without team= and stale=";
            return Err(self.form(STEP, what));
        }
        Ok(training.workload(self.hosts.count))
    }

    fn too_many_hosts(&self, training: &Training) -> String {
        let most = training.most_hosts();
        match training.exchange {
            GradientExchange::Grid(_) | GradientExchange::Line(_) => format!(
                "{most} hosts share the matrices, and the workload has {}: add @hosts=0-{}",
                self.hosts.count,
                most - 1
            ),
            _ => format!("this many servers serve at most {most} hosts, themselves included"),
        }
    }

    fn model(&self, name: &str) -> Result<Model, PatternError> {
        match self.models.iter().find(|model| model.name == name) {
            Some(model) => Ok(model.clone()),
            None => Ok(Model::named(name)?),
        }
    }

    fn exchange(&self, how: &str) -> Result<GradientExchange, PatternError> {
        match how.split_once('=').map(|(how, count)| (how.trim(), count)) {
            None if how == "ddp" => Ok(GradientExchange::Buckets),
            None if how == "tensors" => Ok(GradientExchange::Tensors),
            Some(("ps", count)) => Ok(GradientExchange::Servers(self.whole("ps", count, 65_535)?)),
            Some(("summa", shape)) => self.grid(shape),
            Some(("megatron", hosts)) => Ok(GradientExchange::Line(TensorLine {
                hosts: self.whole("megatron", hosts, GRID_MAX)?,
                tokens: TOKENS,
            })),
            Some(("gossip", partners)) => self.gossip(partners.trim()),
            Some(("plan", plan)) => {
                let plan = plan.parse();
                let plan = plan
                    .map_err(|error: MixedPlanError| self.form(STEP, format!("plan=: {error}")))?;
                let samples = None;
                Ok(GradientExchange::Mixed { plan, samples })
            }
            _ => {
                let what = format!(
                    "`{how}`: allowed are ddp, tensors, ps=SERVERS, gossip=PARTNERS, \
                     summa=ROWSxCOLUMNSxLAYERS, megatron=HOSTS and plan=BLOCKS"
                );
                Err(self.form(STEP, what))
            }
        }
    }

    fn gossip(&self, given: &str) -> Result<GradientExchange, PatternError> {
        let partners = given.parse::<Partners>().map(GradientExchange::Gossip);
        partners.map_err(|_| {
            let what = format!("gossip=`{given}`: allowed are ring, halving-doubling and centre");
            self.form(STEP, what)
        })
    }

    fn staleness(&self, given: &str) -> Result<Staleness, PatternError> {
        let steps = given.parse().ok().filter(|steps| *steps <= STALE_MAX);
        match steps {
            _ if given == "any" => Ok(Staleness::Unbounded),
            Some(steps) => Ok(Staleness::Steps(steps)),
            None => {
                let what = format!(
                    "stale=`{given}`: allowed are any, and whole numbers from 0 to {STALE_MAX}"
                );
                Err(self.form(STEP, what))
            }
        }
    }

    fn grid(&self, shape: &str) -> Result<GradientExchange, PatternError> {
        let sizes = shape.split('x').map(|size| size.trim().parse::<u32>());
        let sizes: Vec<u32> = sizes.collect::<Result<_, _>>().unwrap_or_default();
        match sizes[..] {
            [side, columns, depth]
                if side == columns
                    && side.min(depth) > 0
                    && u64::from(side).pow(2) * u64::from(depth) <= u64::from(GRID_MAX) =>
            {
                Ok(GradientExchange::Grid(ProductGrid {
                    side,
                    depth,
                    tokens: TOKENS,
                }))
            }
            _ => {
                let what = format!(
                    "summa=`{shape}`: it needs ROWSxCOLUMNSxLAYERS with as many rows as columns, \
                     such as 4x4x4, and at most {GRID_MAX} hosts"
                );
                Err(self.form(STEP, what))
            }
        }
    }

    fn option(&self, training: &mut Training, option: &str) -> Result<(), PatternError> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let (key, value) = (key.trim(), value.trim());
        match key {
            "steps" => training.steps = self.whole(key, value, STEPS_MAX)?,
            "scale" => training.scale = self.whole(key, value, SCALE_MAX)?,
            "slow" => {
                let slow = value.parse().ok();
                let slow = slow.filter(|slow| (1.0..=SLOW_MAX).contains(slow));
                training.straggling = slow.ok_or_else(|| {
                    self.form(STEP, format!("slow=`{value}`: allowed are 1 to {SLOW_MAX}"))
                })?;
            }
            "update" => {
                training.update = match value {
                    "layer" => Update::Layer,
                    "all" => Update::All,
                    _ => {
                        let what = format!("update=`{value}`: allowed are layer and all");
                        return Err(self.form(STEP, what));
                    }
                }
            }
            "overlap" => {
                training.overlap = match value {
                    "on" => Overlap::Backward,
                    "off" => Overlap::Off,
                    _ => {
                        let what = format!("overlap=`{value}`: allowed are on and off");
                        return Err(self.form(STEP, what));
                    }
                }
            }
            "stale" | "team" if !training.exchanges_whole() => {
                let what = format!("{key}= is for ddp, tensors, ps= and gossip=");
                return Err(self.form(STEP, what));
            }
            "stale" => training.staleness = self.staleness(value)?,
            "team" => training.team = self.whole(key, value, TEAM_MAX)?,
            "beside" => training.beside = Some(self.model(value)?),
            "bucket" => {
                let size = notation::size(value).map(ByteCount::get);
                let size = size.filter(|bytes| PART_BYTES.contains(bytes));
                training.bucket = size.ok_or_else(|| {
                    let what = format!("bucket=`{value}`: allowed are sizes from 4KiB to 1GiB");
                    self.form(STEP, what)
                })?;
            }
            "part" => training.parts = self.parts(value)?,
            "tokens" | "samples" => self.batch(training, key, value)?,
            "algorithm" => training.algorithm = Some(self.algorithm(value)?),
            "codec" | "codec_on" => self.codec(training, key, value)?,
            _ => {
                let (nearest, known) = (did_you_mean(key, KEYS), KEYS.join(", "));
                let what = format!("unknown key `{key}`{nearest}; known are {known}");
                return Err(self.form(STEP, what));
            }
        }
        Ok(())
    }

    /// Sets the share of the batch that each host has.
    fn batch(&self, training: &mut Training, key: &str, value: &str) -> Result<(), PatternError> {
        match (&mut training.exchange, key) {
            (GradientExchange::Grid(grid), "tokens") => {
                grid.tokens = self.whole(key, value, TOKENS_MAX)?;
            }
            (GradientExchange::Line(line), "tokens") => {
                line.tokens = self.whole(key, value, TOKENS_MAX)?;
            }
            (GradientExchange::Mixed { samples, .. }, "samples") => {
                *samples = Some(self.whole(key, value, SAMPLES_MAX)?);
            }
            _ => {
                let what = "tokens= is for summa= and megatron=, and samples= for plan=, where \
                            activations travel";
                return Err(self.form(STEP, what));
            }
        }
        Ok(())
    }

    /// Sets the time that codecs take.
    fn codec(&self, training: &mut Training, key: &str, value: &str) -> Result<(), PatternError> {
        let codec = match (key, value, training.codec) {
            ("codec", ..) => {
                let unit = training.codec.map_or(CodecUnit::Cores, |codec| codec.unit);
                let rate = settings::rate(value).ok_or_else(|| {
                    let allowed = settings::RATE_ALLOWED;
                    self.form(STEP, format!("codec=`{value}`: allowed are {allowed}"))
                })?;
                CodecTime { rate, unit }
            }
            (_, "cores" | "compute", Some(codec)) => CodecTime {
                unit: match value {
                    "cores" => CodecUnit::Cores,
                    _ => CodecUnit::Compute,
                },
                ..codec
            },
            (_, _, Some(_)) => {
                let what = format!("codec_on=`{value}`: allowed are cores and compute");
                return Err(self.form(STEP, what));
            }
            (_, _, None) => {
                let what = "codec_on= needs codec=, the rate of a codec, before it";
                return Err(self.form(STEP, what));
            }
        };
        training.codec = Some(codec);
        Ok(())
    }

    fn parts(&self, given: &str) -> Result<Parts, PatternError> {
        let size = notation::size(given).map(ByteCount::get);
        let size = size.filter(|bytes| PART_BYTES.contains(bytes));
        match size {
            _ if given == "whole" => Ok(Parts::Whole),
            Some(bytes) => Ok(Parts::OfBytes(bytes)),
            None => {
                let what =
                    format!("part=`{given}`: allowed are whole, and sizes from 4KiB to 1GiB");
                Err(self.form(STEP, what))
            }
        }
    }

    fn algorithm(&self, given: &str) -> Result<ReduceAlgorithm, PatternError> {
        let named = given.parse().ok();
        let named = named.filter(|algorithm| *algorithm != ReduceAlgorithm::Auto);
        named.ok_or_else(|| {
            let names = "direct, ring, halving-doubling, hierarchical";
            self.form(STEP, format!("algorithm=`{given}`: allowed are {names}"))
        })
    }

    fn whole(&self, key: &str, given: &str, most: u32) -> Result<u32, PatternError> {
        let number = given.trim().parse().ok();
        let number = number.filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| {
            let what = format!("{key}=`{given}`: allowed are whole numbers from 1 to {most}");
            self.form(STEP, what)
        })
    }
}
