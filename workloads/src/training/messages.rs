//! Groups gradients into messages.

use gradwire_protocol::units::Layer;

use super::exchange::{GradientExchange, Parts, Training};
use crate::model::{ELEMENT_BYTES, Gradient};

/// Bytes at which the first bucket is closed at the latest.
const FIRST_BUCKET_BYTES: u64 = 1 << 20;
/// Elements from which on all servers share an uncut gradient.
const SHARED_ELEMENTS: u64 = 1_000_000;

/// Gradients, or a part of one, in one exchange.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct GradientMessage {
    /// Its name in results.
    pub(super) name: String,
    pub(super) bytes: u64,
    /// The first byte of each layer.
    pub(super) layers: Vec<(u64, Layer)>,
    /// Index of the gradient that completes it.
    pub(super) last: u32,
    /// Its server; 0 without servers.
    pub(super) server: u32,
}

/// Returns the messages of a step in the order of their completion. Limits of messages are divided
/// by `scale`, like the model.
pub(super) fn messages(training: &Training) -> Vec<GradientMessage> {
    let Training { model, scale, .. } = training;
    let scaled = |bytes: u64| (bytes / u64::from(*scale.max(&1))).max(ELEMENT_BYTES);
    let gradients = (0..).zip(&model.gradients);
    let gradients = gradients.filter(|(_, one)| one.parameters > 0);
    match training.exchange {
        GradientExchange::Buckets | GradientExchange::Gossip(_) => {
            let first = training.bucket.min(FIRST_BUCKET_BYTES);
            buckets(gradients, [first, training.bucket].map(scaled))
        }
        GradientExchange::Tensors => gradients.map(|(at, one)| whole(at, one)).collect(),
        GradientExchange::Servers(servers) => {
            let count = |one: &Gradient| match training.parts {
                Parts::OfBytes(most) => one.parameters.div_ceil(scaled(most) / ELEMENT_BYTES),
                Parts::Whole if one.parameters >= scaled(SHARED_ELEMENTS) => u64::from(servers),
                Parts::Whole => 1,
            };
            let parts = gradients.flat_map(|(at, one)| parts(at, one, count(one)));
            shared(parts.collect(), servers)
        }
        // `grid`, `line` and `mixed` make their own messages.
        GradientExchange::Grid(_) | GradientExchange::Line(_) | GradientExchange::Mixed { .. } => {
            Vec::new()
        }
    }
}

fn whole(at: u32, one: &Gradient) -> GradientMessage {
    GradientMessage {
        name: one.name.clone(),
        bytes: one.parameters * ELEMENT_BYTES,
        layers: vec![(0, Layer(one.layer))],
        last: at,
        server: 0,
    }
}

fn buckets<'a>(
    gradients: impl Iterator<Item = (u32, &'a Gradient)>,
    limits: [u64; 2],
) -> Vec<GradientMessage> {
    let mut buckets: Vec<GradientMessage> = Vec::new();
    for (at, one) in gradients {
        let limit = limits[usize::from(buckets.len() > 1)];
        match buckets.last_mut() {
            Some(open) if open.bytes < limit => {
                let layer = Layer(one.layer);
                if open.layers.last().is_some_and(|(_, last)| *last != layer) {
                    open.layers.push((open.bytes, layer));
                }
                open.bytes += one.parameters * ELEMENT_BYTES;
                open.last = at;
            }
            _ => {
                let name = format!("bucket {}", buckets.len());
                let first = whole(at, one);
                buckets.push(GradientMessage { name, ..first });
            }
        }
    }
    buckets
}

/// Cuts a gradient into equal parts of whole elements.
fn parts(at: u32, one: &Gradient, count: u64) -> Vec<GradientMessage> {
    let count = count.clamp(1, one.parameters);
    let end = |part: u64| one.parameters * part / count * ELEMENT_BYTES;
    let parts = (0..count).map(|part| GradientMessage {
        bytes: end(part + 1) - end(part),
        ..whole(at, one)
    });
    parts.collect()
}

/// Gives each part, in order, to the server with the fewest bytes.
fn shared(mut parts: Vec<GradientMessage>, servers: u32) -> Vec<GradientMessage> {
    let mut loads = vec![0_u64; servers as usize];
    for part in &mut parts {
        let least = (0..).zip(&loads).min_by_key(|(_, load)| **load);
        let (server, _) = least.expect("there is a server, as documented");
        part.server = server;
        loads[server as usize] += part.bytes;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::training::{BUCKET_BYTES, Overlap, Staleness, Update};

    fn training(name: &str, exchange: GradientExchange) -> Training {
        Training {
            model: Model::named(name).expect("it is one of the names"),
            exchange,
            parts: Parts::default(),
            update: Update::Layer,
            bucket: BUCKET_BYTES,
            overlap: Overlap::Backward,
            beside: None,
            staleness: Staleness::Steps(0),
            team: 1,
            steps: 1,
            straggling: 1.0,
            algorithm: None,
            codec: None,
            scale: 1,
        }
    }

    fn all_of(training: &Training) -> Vec<GradientMessage> {
        let messages = messages(training);
        let bytes = messages.iter().map(|one| one.bytes).sum::<u64>();
        assert_eq!(
            bytes,
            training.model.bytes().get(),
            "all gradients are sent"
        );
        messages
    }

    fn of(name: &str, exchange: GradientExchange) -> Vec<GradientMessage> {
        all_of(&training(name, exchange))
    }

    /// Returns the bytes of each of eight servers.
    fn loads(messages: &[GradientMessage]) -> Vec<u64> {
        let load = |server| {
            let own = messages.iter().filter(|one| one.server == server);
            own.map(|one| one.bytes).sum()
        };
        (0..8).map(load).collect()
    }

    #[test]
    fn buckets_are_closed_as_ddp_closes_them() {
        let buckets = of("vgg16", GradientExchange::Buckets);
        // The last matrix alone exceeds the first bucket's cap, the next two exceed 25 MiB each,
        // and the rest is less than 25 MiB twice.
        let sizes: Vec<u64> = buckets.iter().map(|one| one.bytes).collect();
        let first = (1_000 + 4_096_000) * 4;
        assert_eq!(
            sizes[..3],
            [first, (4_096 + 16_777_216) * 4, (4_096 + 102_760_448) * 4]
        );
        for bucket in &buckets[1..buckets.len() - 1] {
            assert!(bucket.bytes >= 25 << 20, "{} bytes", bucket.bytes);
        }
        assert_eq!(buckets[1].layers, [(0, Layer(14))]);
        let ends: Vec<u32> = buckets.iter().map(|one| one.last).collect();
        assert!(ends.is_sorted() && ends.ends_with(&[31]), "{ends:?}");
    }

    #[test]
    fn a_scaled_model_has_as_many_messages_as_the_whole_one() {
        for exchange in [
            GradientExchange::Buckets,
            GradientExchange::Tensors,
            GradientExchange::Servers(8),
        ] {
            let whole = training("vgg16", exchange.clone());
            let scaled = Training {
                model: whole.model.clone().divided(64),
                scale: 64,
                ..whole
            };
            let scaled = messages(&scaled);
            assert_eq!(
                scaled.len(),
                of("vgg16", exchange.clone()).len(),
                "{exchange:?}"
            );
        }
    }

    #[test]
    fn the_layers_of_a_bucket_begin_where_their_bytes_do() {
        let buckets = of("resnet50", GradientExchange::Buckets);
        let first = &buckets[0];
        assert_eq!(
            first.layers,
            [(0, Layer(106))],
            "fc alone has more than 1 MiB"
        );
        let second = &buckets[1].layers;
        // layer4.2.bn3 has 2 x 2,048 elements, conv3 before it the next ones.
        assert_eq!(second[..2], [(0, Layer(105)), (16_384, Layer(104))]);
    }

    #[test]
    fn every_tensor_is_its_own_message() {
        assert_eq!(of("bert-base", GradientExchange::Tensors).len(), 199);
    }

    #[test]
    fn servers_share_the_bytes_evenly() {
        let parts = of("vgg16", GradientExchange::Servers(8));
        assert!(
            parts
                .iter()
                .all(|part| part.bytes <= 4_096_000 && part.bytes % 4 == 0)
        );
        let loads = loads(&parts);
        let (least, most) = (loads.iter().min(), loads.iter().max());
        let apart = most.zip(least).map(|(most, least)| most - least);
        assert!(apart.is_some_and(|apart| apart <= 4_096_000), "{loads:?}");
    }

    #[test]
    fn uncut_gradients_are_whole_unless_they_are_large_enough_for_all_servers() {
        let messages = all_of(&Training {
            parts: Parts::Whole,
            ..training("vgg16", GradientExchange::Servers(8))
        });
        let of_layer = |layer| {
            let own = messages.iter().filter(move |one| one.last == layer);
            own.map(|one| one.bytes).collect::<Vec<u64>>()
        };
        // fc8 has 4,096,000 elements and its bias 1,000.
        assert_eq!(of_layer(1), [2_048_000; 8]);
        assert_eq!(of_layer(0), [4_000]);
        let loads = loads(&messages);
        let (least, most) = (loads.iter().min(), loads.iter().max());
        let apart = most.zip(least).map(|(most, least)| most - least);
        assert!(apart.is_some_and(|apart| apart <= 4_000_000), "{loads:?}");
    }
}
