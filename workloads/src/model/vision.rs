//! Networks for images of 224 x 224, with names and sizes as torchvision has them.
//!
//! AlexNet in its "one weird trick" form; VGG without batch normalisation, configurations D (16)
//! and E (19) of Simonyan and Zisserman; ResNet with bottlenecks, of He et al., table 1.

use super::shape::Architecture;
use super::trained::WeightSplit;

const CLASSES: u64 = 1_000;

/// AlexNet: 61,100,840 parameters.
pub(super) fn alexnet() -> Architecture {
    let mut shape = Architecture::default();
    // Index, inputs, outputs, kernel, and the side of the output.
    for (at, from, to, kernel, sides) in [
        (0, 3, 64, 11, (224, 55)),
        (3, 64, 192, 5, (27, 27)),
        (6, 192, 384, 3, (13, 13)),
        (8, 384, 256, 3, (13, 13)),
        (10, 256, 256, 3, (13, 13)),
    ] {
        let name = format!("features.{at}");
        convolution(&mut shape, &name, [from, to, kernel], sides);
        if [0, 3, 10].contains(&at) {
            // Pooling follows.
            shape.keeps(to * sides.1 * sides.1);
        }
    }
    shape.linear("classifier.1", 256 * 6 * 6, 4096);
    shape.linear("classifier.4", 4096, 4096);
    shape.linear("classifier.6", 4096, CLASSES);
    shape
}

/// VGG with `stages` convolutions in its five stages.
pub(super) fn vgg(stages: &[u64; 5]) -> Architecture {
    let mut shape = Architecture::default();
    let (mut at, mut from, mut side) = (0, 3, 224);
    for (stage, convolutions) in stages.iter().enumerate() {
        let to = (64 << stage).min(512);
        for _ in 0..*convolutions {
            let name = format!("features.{at}");
            convolution(&mut shape, &name, [from, to, 3], (side, side));
            // A rectifier follows each convolution, and pooling the last one of a stage.
            at += 2;
            from = to;
        }
        at += 1;
        shape.keeps(from * side * side);
        side /= 2;
    }
    shape.linear("classifier.0", 512 * 7 * 7, 4096);
    shape.linear("classifier.3", 4096, 4096);
    shape.linear("classifier.6", 4096, CLASSES);
    shape
}

/// ResNet with `stages` bottlenecks in its four stages.
pub(super) fn resnet(stages: [u64; 4]) -> Architecture {
    let mut shape = Architecture::default();
    shape.add("conv1.weight".to_owned(), 3 * 64 * 7 * 7, 0);
    let stem = 64 * 112 * 112;
    shape.passes((3 * 224 * 224, stem), WeightSplit::Columns);
    shape.norm_of("bn1", 64, stem);
    shape.keeps(stem);
    let (mut from, mut side) = (64, 56);
    for (stage, blocks) in stages.into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            let name = format!("layer{}.{block}", stage + 1);
            // The first block of a stage halves the side, in its second convolution.
            let to_side = match (stage, block) {
                (1.., 0) => side / 2,
                _ => side,
            };
            bottleneck(&mut shape, &name, [from, width], (side, to_side));
            if block == 0 {
                let weight = format!("{name}.downsample.0.weight");
                shape.add(weight, from * 4 * width, 0);
                let area = to_side * to_side;
                shape.passes((0, 4 * width * area), WeightSplit::Columns);
                shape.norm_of(&format!("{name}.downsample.1"), 4 * width, 4 * width * area);
            }
            (from, side) = (4 * width, to_side);
        }
    }
    shape.linear("fc", from, CLASSES);
    shape
}

fn bottleneck(
    shape: &mut Architecture,
    name: &str,
    [from, width]: [u64; 2],
    (side, to_side): (u64, u64),
) {
    for (number, from, to, kernel, sides) in [
        (1, from, width, 1, (side, side)),
        (2, width, width, 3, (side, to_side)),
        (3, width, 4 * width, 1, (to_side, to_side)),
    ] {
        let weight = format!("{name}.conv{number}.weight");
        shape.add(weight, from * to * kernel * kernel, 0);
        let [reads, writes] = [from * sides.0 * sides.0, to * sides.1 * sides.1];
        shape.passes((reads, writes), WeightSplit::Columns);
        shape.norm_of(&format!("{name}.bn{number}"), to, writes);
    }
}

/// Adds a convolution of inputs, outputs and kernel, from `sides.0` x `sides.0` places to `sides.1`
/// x `sides.1`.
fn convolution(
    shape: &mut Architecture,
    name: &str,
    [from, to, kernel]: [u64; 3],
    sides: (u64, u64),
) {
    let (weight, places) = (from * to * kernel * kernel, sides.1 * sides.1);
    shape.add(format!("{name}.weight"), weight, weight * places);
    let reads = from * sides.0 * sides.0;
    shape.passes((reads, to * places), WeightSplit::Columns);
    shape.add(format!("{name}.bias"), to, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_what_is_published_in_multiply_adds() {
        let giga = |shape: &Architecture| {
            let work = shape.tensors.iter().map(|tensor| tensor.work).sum::<u64>();
            (work as f64 / 1e7).round() / 100.0
        };
        // These numbers are published with torchvision's weights.
        assert_eq!(giga(&alexnet()), 0.71);
        assert_eq!(giga(&vgg(&[2, 2, 3, 3, 3])), 15.47);
        assert_eq!(giga(&vgg(&[2, 2, 4, 4, 4])), 19.63);
    }

    #[test]
    fn convolutions_write_as_many_values_as_published() {
        let millions = |shape: &Architecture| {
            let weights = shape.tensors.iter().map(|tensor| tensor.values);
            let split = weights.filter(|values| values.split == WeightSplit::Columns);
            let writes = split.map(|values| values.writes).sum::<u64>();
            (writes as f64 / 1e4).round() / 100.0
        };
        // Radosavovic et al., CVPR 2020: ResNet-50 has 11.1 M activations.
        assert_eq!(millions(&resnet([3, 4, 6, 3])), 11.11);
        assert_eq!(millions(&vgg(&[2, 2, 3, 3, 3])), 13.56);
    }
}
