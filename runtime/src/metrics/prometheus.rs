//! A snapshot as text for Prometheus, in the format of OpenMetrics 1.0.
//!
//! Names begin with `gradwire_`; every value has the labels `job` and `rank`, and `peer`, `class`,
//! `collective` or `reason` if it is one of several. Times are seconds.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::snapshot::{ClassTraffic, PeerSnapshot, Snapshot, TimeSpread};

/// The media type of the text.
pub const MEDIA: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The snapshot as text.
pub fn text(snapshot: &Snapshot) -> String {
    let labels = [
        ("job".into(), snapshot.job.clone().into()),
        ("rank".into(), snapshot.rank.to_string().into()),
    ];
    let mut registry = Registry::with_prefix_and_labels("gradwire", labels.into_iter());
    registry.register_collector(Box::new(Exposition(snapshot.clone())));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all that is written");
    text
}

type Labels = Vec<(&'static str, String)>;
type CountOf<T> = (&'static str, &'static str, fn(&T) -> u64);

const OF_CLASSES: [CountOf<ClassTraffic>; 7] = [
    (
        "sent_packets",
        "Packets sent, including repairs.",
        |class| class.sent_packets,
    ),
    ("sent_bytes", "Bytes of packets sent.", |class| {
        class.sent_bytes
    }),
    ("repaired_segments", "Segments sent again.", |class| {
        class.repaired_segments
    }),
    (
        "missed_segments",
        "Segments sent that the peer accepted as lost.",
        |class| class.missed_segments,
    ),
    (
        "received_packets",
        "Packets received, including duplicates.",
        |class| class.received_packets,
    ),
    ("received_bytes", "Bytes of packets received.", |class| {
        class.received_bytes
    }),
    ("marks", "Data packets received with CE.", |class| {
        class.marks
    }),
];

const OF_PEERS: [CountOf<PeerSnapshot>; 15] = [
    (
        "sent_segments",
        "Segments sent for the first time.",
        |peer| peer.sent_segments,
    ),
    (
        "found_lost_segments",
        "Segments found lost on their way.",
        |peer| peer.found_lost_segments,
    ),
    ("probes", "Probes sent.", |peer| peer.probes),
    (
        "path_failures",
        "Times that the path lost most packets for seconds.",
        |peer| peer.path_failures,
    ),
    (
        "false_marks",
        "Times that marks were ignored from then on, since all packets come marked.",
        |peer| peer.false_marks,
    ),
    (
        "cleared_ecn",
        "Control packets received without the ECN bits that they left with.",
        |peer| peer.cleared_ecn,
    ),
    ("echoed_marks", "CE marks that the peer reported.", |peer| {
        peer.echoed_marks
    }),
    ("parity_packets", "Parity packets sent.", |peer| {
        peer.parity_packets
    }),
    (
        "received_segments",
        "Segments received for the first time.",
        |peer| peer.received_segments,
    ),
    (
        "restored_segments",
        "Of these, lost segments that parity has restored.",
        |peer| peer.restored_segments,
    ),
    ("duplicate_segments", "Segments received again.", |peer| {
        peer.duplicate_segments
    }),
    (
        "lost_segments",
        "Segments accepted as lost, within the tolerance.",
        |peer| peer.lost_segments,
    ),
    (
        "given_up_segments",
        "Lost segments that were given up when patience ended.",
        |peer| peer.given_up_segments,
    ),
    (
        "late_segments",
        "Segments received after their message was complete without them.",
        |peer| peer.late_segments,
    ),
    (
        "overtaken_packets",
        "Packets that a later packet of their path had overtaken.",
        |peer| peer.overtaken_packets,
    ),
];

#[derive(Debug)]
struct Exposition(Snapshot);

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.traffic(&mut encoder)?;
        self.rank(&mut encoder)?;
        self.times(&mut encoder)
    }
}

impl Exposition {
    fn traffic(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Self(snapshot) = self;
        for (name, help, count) in OF_CLASSES {
            let rows = snapshot.peers.iter().flat_map(|peer| {
                let labels = |class: u8| of_peer_and_class(peer, class);
                let classes = peer.classes.iter();
                classes.map(move |class| (labels(class.class), count(class)))
            });
            counter(encoder, (name, help), rows)?;
        }
        for (name, help, count) in OF_PEERS {
            let rows = snapshot.peers.iter();
            let rows = rows.map(|peer| (of_peer(peer), count(peer)));
            counter(encoder, (name, help), rows)?;
        }
        let peers = || snapshot.peers.iter();
        let flying = peers().map(|peer| (of_peer(peer), peer.in_flight_bytes as f64));
        let help = "Bytes in flight to the peer.";
        gauge(encoder, ("in_flight_bytes", help), flying)?;
        let windows = peers().map(|peer| (of_peer(peer), peer.window_bytes as f64));
        let help = "Bytes that may be in flight to the peer.";
        gauge(encoder, ("window_bytes", help), windows)?;
        let well = |peer: &PeerSnapshot| f64::from(u8::from(peer.standing == "well"));
        let up = peers().map(|peer| (of_peer(peer), well(peer)));
        gauge(
            encoder,
            (
                "peer_up",
                "1 while the peer answers, 0 when it is silent or lost.",
            ),
            up,
        )?;
        let kept = |peer: &PeerSnapshot| f64::from(u8::from(peer.order == "kept"));
        let kept = peers().map(|peer| (of_peer(peer), kept(peer)));
        let help = "1 while its packets are trusted to keep their order on each path.";
        gauge(encoder, ("path_order_kept", help), kept)
    }

    fn rank(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Self(snapshot) = self;
        let help = "Packets that were rejected, by reason.";
        let refused = snapshot.refused_packets.iter();
        let refused = refused.map(|(why, count)| (vec![("reason", why.clone())], *count));
        counter(encoder, ("refused_packets", help), refused)?;
        for (name, count) in &snapshot.driver {
            let help = format!("What the driver counted as {}.", name.replace('_', " "));
            let name = format!("driver_{name}");
            counter(encoder, (&name, &help), [(Labels::new(), *count)])?;
        }
        let loss = &snapshot.loss;
        for (name, help, count) in [
            (
                "lossy_owed_bytes",
                "Bytes that might be lost.",
                loss.owed_bytes,
            ),
            (
                "lossy_allowed_bytes",
                "Bytes that the tolerance allowed to be lost.",
                loss.allowed_bytes,
            ),
            (
                "lossy_lost_bytes",
                "Bytes accepted as lost.",
                loss.lost_bytes,
            ),
            (
                "held_messages",
                "Gradient messages that waited for credit before they left.",
                snapshot.held_messages,
            ),
            (
                "dropped_residual_elements",
                "Elements that error feedback dropped, not finite or of a tensor that changed.",
                snapshot.dropped_residual_elements,
            ),
        ] {
            counter(encoder, (name, help), [(Labels::new(), count)])?;
        }
        for (name, help, value) in [
            (
                "tolerance_ratio",
                "The job's tolerance.",
                snapshot.tolerance,
            ),
            (
                "uptime_seconds",
                "Since the rank joined.",
                snapshot.uptime_s,
            ),
        ] {
            gauge(encoder, (name, help), [(Labels::new(), value)])?;
        }
        let failed = snapshot.operations.iter();
        let failed = failed.map(|one| (vec![("collective", one.collective.clone())], one.failed));
        let help = "Operations that failed.";
        counter(encoder, ("failed_operations", help), failed)
    }

    fn times(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Self(snapshot) = self;
        let help = "Round trips to the peer.";
        let rows = snapshot.peers.iter();
        let rows = rows.map(|peer| (of_peer(peer), &peer.round_trips));
        histogram(encoder, ("round_trip_seconds", help), rows)?;
        let help = "From a message's start until its receiver had all that it needs.";
        let rows = snapshot.messages.iter();
        let rows = rows.map(|one| (vec![("class", one.class.to_string())], &one.times));
        histogram(encoder, ("message_seconds", help), rows)?;
        let help = "Operations, from their submission to their end.";
        let rows = snapshot.operations.iter();
        let rows = rows.map(|one| (vec![("collective", one.collective.clone())], &one.times));
        histogram(encoder, ("operation_seconds", help), rows)
    }
}

fn of_peer(peer: &PeerSnapshot) -> Labels {
    vec![("peer", peer.rank.to_string())]
}

fn of_peer_and_class(peer: &PeerSnapshot, class: u8) -> Labels {
    let mut labels = of_peer(peer);
    labels.push(("class", class.to_string()));
    labels
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    rows: impl IntoIterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in rows {
        let mut row = metric.encode_family(&labels)?;
        row.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
    }
    Ok(())
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    rows: impl IntoIterator<Item = (Labels, f64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in rows {
        metric.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

fn histogram<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    rows: impl IntoIterator<Item = (Labels, &'a TimeSpread)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (labels, spread) in rows {
        let mut before = 0;
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(spread.buckets.len() + 1);
        // The encoder expects the count of each bucket alone, not the sum up to it.
        for &(bound_us, count) in &spread.buckets {
            buckets.push((bound_us as f64 / 1e6, count - before));
            before = count;
        }
        buckets.push((f64::INFINITY, spread.count - before));
        let mut row = metric.encode_family(&labels)?;
        row.encode_histogram::<NoLabelSet>(spread.sum_us / 1e6, spread.count, &buckets, None)?;
    }
    Ok(())
}
