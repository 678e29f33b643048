//! Which codec a model gains from, and for which tensors: costs of this host, a plan per tensor.
//!
//! Start here:
//! - [`run`]: measures each codec, plans each tensor, and compares the sums.
//! - [`trials`]: the strongest codec that a script's metric bears.
//! - [`report`]: the result in words, for programs, and as keys of a job file.
//!
//! The rule of a plan is `gradwire_tuning::selective`. Not here: how well a training learns with a
//! codec.

pub mod measured;
pub mod report;
pub mod trials;

use clap::{Args, ValueEnum};
use gradwire_fabric::settings;
use gradwire_protocol::job::CodecName;
use gradwire_protocol::units::{Rate, Share, Span};
use gradwire_tuning::selective::{CodecCosts, ExchangeCosts, LinearCost};

use crate::error::LabError;
use crate::files;
use crate::values::{share, span};
use report::{CodecReport, CodecRow, PlanRow};

/// How gradients travel between hosts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum PlannedExchange {
    /// Each shard to its owner or server, and back.
    Servers,
    /// Around a ring.
    Ring,
}

/// The question of a plan.
#[derive(Args, Clone, Debug)]
pub struct CodecQuestion {
    /// The model: a name such as vgg19, or a file as for `gradwire model`.
    #[arg(long, required_unless_present = "metric", value_name = "MODEL")]
    pub model: Option<String>,
    /// Hosts, each of which owns or serves a part of every tensor.
    #[arg(long, default_value_t = 4, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub servers: u32,
    /// How gradients travel.
    #[arg(long, default_value = "servers")]
    pub exchange: PlannedExchange,
    /// Bandwidth of a host.
    #[arg(long, default_value = "25G", value_parser = rate, value_name = "RATE")]
    pub bandwidth: Rate,
    /// Round trip between hosts.
    #[arg(long, default_value = "50us", value_parser = span, value_name = "TIME")]
    pub rtt: Span,
    /// Share of the values that top-k sends.
    #[arg(long, default_value = "1%", value_parser = share, value_name = "SHARE")]
    pub share: Share,
    /// Take the costs that HiPress published for its codec and cluster (4, 8 or 16 servers, or a
    /// ring) instead of measured ones.
    #[arg(long)]
    pub published: bool,
}

fn rate(text: &str) -> Result<Rate, String> {
    settings::rate(text).ok_or_else(|| format!("allowed are {}", settings::RATE_ALLOWED))
}

/// Measures codecs and plans the tensors of a model.
///
/// # Errors
/// [`LabError`] when there is no such model, or no published cost for this many servers.
pub fn run(question: &CodecQuestion) -> Result<CodecReport, LabError> {
    let name = question.model.as_deref().unwrap_or_default();
    let model = files::model(name)?;
    let codecs = match question.published {
        true => vec![("published", published(question)?)],
        false => measured::CODECS
            .iter()
            .map(|&codec| (<&str>::from(codec), measured_costs(codec, question)))
            .collect(),
    };
    let rows = codecs.into_iter().map(|(codec, costs)| {
        let plans = model.gradients.iter().map(|gradient| {
            let plan = costs.plan(gradient.parameters, question.servers);
            PlanRow::new(&gradient.name, &plan)
        });
        CodecRow::new(codec, plans.collect(), costs.threshold(question.servers))
    });
    Ok(CodecReport::new(question, rows.collect()))
}

fn published(question: &CodecQuestion) -> Result<CodecCosts, LabError> {
    match question.exchange {
        PlannedExchange::Ring => Ok(CodecCosts::published_ring()),
        PlannedExchange::Servers => {
            let servers = question.servers;
            CodecCosts::published_servers(servers).ok_or_else(|| {
                let told = format!(
                    "--published --servers {servers}: HiPress published costs of 4, 8 and 16 \
                     servers; give one of these, or --exchange ring"
                );
                LabError::Usage(told)
            })
        }
    }
}

/// The costs of a codec on this host and of the described network. A server takes the part of
/// every other host through its own link, and sends it back.
fn measured_costs(codec: CodecName, question: &CodecQuestion) -> CodecCosts {
    let measured = measured::costs(codec, question.share, question.servers);
    let bits = 8.0 * measured::ELEMENT_BYTES as f64;
    let ms_per_element = bits / question.bandwidth.as_bits_per_second() as f64 * 1e3;
    let way_ms = question.rtt.as_picos() as f64 / 1e9 / 2.0;
    let line = |links: f64| LinearCost {
        per_element: ms_per_element * links,
        base: way_ms,
        floor: way_ms,
    };
    let others = f64::from(question.servers - 1);
    let exchange = match question.exchange {
        PlannedExchange::Ring => ExchangeCosts::Ring { send: line(1.0) },
        PlannedExchange::Servers => ExchangeCosts::Servers {
            gather: line(others),
            broadcast: line(others),
        },
    };
    CodecCosts {
        exchange,
        ..measured
    }
}
