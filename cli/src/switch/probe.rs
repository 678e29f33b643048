//! `gradwire switch probe`: whether a fabric treats a job's tags as planned, seen from two hosts.
//!
//! One host serves; the other sends packets of all tags of a job, at chosen rates, and asks for the
//! fate of each. [`judge`] interprets the counts, [`mod@print`] shows them, [`simulated`] sends the
//! same packets through the simulator. `gradwire switch verify` judges the switch's own counters.

pub mod judge;
pub mod options;
pub mod print;
pub mod simulated;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use gradwire_lab::error::LabError;
use gradwire_lab::job_file;
use gradwire_netsim::transports::open_loop::{Departures, PacketStream, Traffic};
use gradwire_protocol::job::Job;
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{Class, Rate};
use gradwire_switch_config::counters::CounterVerdict;
use gradwire_transport::probe::{Passages, ProbeClient, Tagging};

use crate::doctor;
use crate::exit::CommandError;
use options::ProbeOptions;
use print::ProbeReport;

/// One kind of packets of a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tagged {
    /// Its traffic class.
    pub class: Class,
    /// How it is sent.
    pub stream: PacketStream,
}

impl Tagged {
    /// `control`, or `class-2` and so on, as switch plans name their queues.
    pub fn name(&self) -> String {
        match self.class.0 {
            0 => "control".to_owned(),
            class => format!("class-{class}"),
        }
    }

    /// The byte of the IP header: DSCP and ECN.
    fn byte(&self) -> u8 {
        self.stream.dscp.0 << 2 | self.stream.ecn as u8
    }
}

/// Runs the command.
///
/// # Errors
/// [`LabError::Check`] when something is certainly not as planned; others name the option or
/// file, or say that the other host does not answer.
pub fn run(options: &ProbeOptions) -> Result<(), CommandError> {
    if options.serve {
        return serve(options);
    }
    let job = match options.job.as_str() {
        "default" => Job::default(),
        path => job_file::read(Path::new(path))?,
    };
    let tags = tags(&job, options)?;
    let mut report = ProbeReport {
        options,
        tags: &tags,
        passages: Passages::default(),
        queues: None,
        judgements: Vec::new(),
    };
    match &options.simulate {
        Some(fabric) => {
            let fates = simulated::send(fabric, &job, &traffic(&tags, options), options.rtt)?;
            report.passages = simulated::passages(&fates);
            report.queues = Some(fates.queues);
        }
        None => report.passages = measure(options, &tags)?,
    }
    report.judgements = judge::all(&tags, &report.passages);
    print!("{}", report.text());
    let wrong = report.judgements.iter();
    let wrong = wrong.filter(|judgement| judgement.verdict == CounterVerdict::Wrong);
    match wrong.count() {
        0 => Ok(()),
        count => Err(LabError::Check(format!(
            "{count} of {} findings are against the plan",
            report.judgements.len()
        ))
        .into()),
    }
}

fn serve(options: &ProbeOptions) -> Result<(), CommandError> {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let address = SocketAddr::new(options.bind.unwrap_or(any), options.port);
    doctor::serve(address, options.form(), "gradwire switch probe")
}

/// The streams of a job: control, and a protected and a droppable one of each data class.
fn tags(job: &Job, options: &ProbeOptions) -> Result<Vec<Tagged>, CommandError> {
    let policy = job.policy();
    let classes = policy.dscps.len();
    let rates = match &options.rate[..] {
        [one] => vec![*one; classes],
        several if several.len() == classes => several.to_vec(),
        several => {
            return Err(CommandError::Usage(format!(
                "--rate has {} rates; the job has {classes} classes, control first: give one rate, \
                 or {classes}",
                several.len()
            )));
        }
    };
    let mut tags = Vec::new();
    for (number, rate) in (0_u8..).zip(rates) {
        let class = Class(number);
        let bits = rate.as_bits_per_second();
        let droppable = match number {
            0 => 0,
            _ => options.droppable.of(bits),
        };
        for (ecn, bits) in [(Ecn::Ect, bits - droppable), (Ecn::NotEct, droppable)] {
            let stream = PacketStream {
                dscp: policy.dscp_of(class, ecn),
                ecn,
                rate: Rate::from_bits_per_second(bits),
                payload: options.payload,
            };
            if bits > 0 {
                tags.push(Tagged { class, stream });
            }
        }
    }
    match tags.first() {
        Some(first) if first.class.0 == 0 => Ok(tags),
        _ => Err(CommandError::Usage(
            "--rate 0 for control: it must be sent, since answers ride in its class".to_owned(),
        )),
    }
}

fn traffic(tags: &[Tagged], options: &ProbeOptions) -> Traffic {
    Traffic {
        streams: tags.iter().map(|tag| tag.stream).collect(),
        source: 0,
        destination: 0,
        length: options.length,
        seed: options.seed,
    }
}

fn measure(options: &ProbeOptions, tags: &[Tagged]) -> Result<Passages, CommandError> {
    let peer = options.peer.as_deref().expect("one of three is given");
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        LabError::system(format!("--peer {peer}"))(std::io::Error::other(error))
    };
    let server = doctor::address(peer)?;
    let classes: Vec<u8> = tags.iter().map(Tagged::byte).collect();
    let client = ProbeClient::connect_in(server, options.bind, classes[0]);
    let mut client = client.map_err(|error| failed(Box::new(error)))?;
    let tagging = Tagging {
        classes: &classes,
        payload: options.payload as usize,
    };
    let departures = Departures::of(&traffic(tags, options));
    let departures = departures.map(|departure| {
        let after = Duration::from_nanos(departure.after.as_nanos());
        (after, departure.stream)
    });
    let passages = client.tagged(tagging, departures);
    let silent =
        "it fell silent: control packets are lost, or the server there is of an older gradwire";
    Ok(passages.ok_or_else(|| failed(silent.into()))?)
}
