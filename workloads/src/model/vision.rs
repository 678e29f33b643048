//! Networks for images of 224 x 224, with names and sizes as torchvision has them.
//!
//! AlexNet in its "one weird trick" form; VGG without batch normalisation, configurations D (16)
//! and E (19) of Simonyan and Zisserman; ResNet with bottlenecks, of He et al., table 1.

use super::shape::Architecture;

const CLASSES: u64 = 1_000;

/// AlexNet: 61,100,840 parameters.
pub(super) fn alexnet() -> Architecture {
    let mut shape = Architecture::default();
    // Index, inputs, outputs, kernel, and the side of the output.
    for (at, from, to, kernel, side) in [
        (0, 3, 64, 11, 55),
        (3, 64, 192, 5, 27),
        (6, 192, 384, 3, 13),
        (8, 384, 256, 3, 13),
        (10, 256, 256, 3, 13),
    ] {
        convolution(
            &mut shape,
            &format!("features.{at}"),
            [from, to, kernel],
            side,
        );
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
            convolution(&mut shape, &format!("features.{at}"), [from, to, 3], side);
            // A rectifier follows each convolution, and pooling the last one of a stage.
            at += 2;
            from = to;
        }
        at += 1;
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
    shape.norm("bn1", 64);
    let mut from = 64;
    for (stage, blocks) in stages.into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            let name = format!("layer{}.{block}", stage + 1);
            bottleneck(&mut shape, &name, from, width);
            if block == 0 {
                let weight = format!("{name}.downsample.0.weight");
                shape.add(weight, from * 4 * width, 0);
                shape.norm(&format!("{name}.downsample.1"), 4 * width);
            }
            from = 4 * width;
        }
    }
    shape.linear("fc", from, CLASSES);
    shape
}

fn bottleneck(shape: &mut Architecture, name: &str, from: u64, width: u64) {
    for (number, from, to, kernel) in [
        (1, from, width, 1),
        (2, width, width, 3),
        (3, width, 4 * width, 1),
    ] {
        let weight = format!("{name}.conv{number}.weight");
        shape.add(weight, from * to * kernel * kernel, 0);
        shape.norm(&format!("{name}.bn{number}"), to);
    }
}

/// Adds a convolution of inputs, outputs and kernel; its output has `side` x `side` places.
fn convolution(shape: &mut Architecture, name: &str, [from, to, kernel]: [u64; 3], side: u64) {
    let weight = from * to * kernel * kernel;
    shape.add(format!("{name}.weight"), weight, weight * side * side);
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
}
