//! Encoded contributions and sums: equal replicas, one residual, short messages.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::codec::Codec;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, LossTerms, Operation, SubmitError};
use gradwire_protocol::job::{CodecName, CodecTerms, HoleFilling, Job};
use gradwire_protocol::units::{ByteCount, Rank, Span};
use gradwire_testnet::link::Profile;

use crate::world::{
    SEGMENT, World, all_reduce, floats, rough, share, small_job, tensor, tolerating,
};

const KEY: u64 = 5;
const CODECS: [CodecName; 5] = [
    CodecName::Onebit,
    CodecName::Tbq,
    CodecName::Terngrad,
    CodecName::Topk,
    CodecName::Blockfloat,
];

fn terms(name: CodecName) -> CodecTerms {
    CodecTerms {
        name,
        share: share(0.05),
        min_tensor: ByteCount::new(0),
    }
}

fn encoded(name: CodecName, tolerance: f64) -> LossTerms {
    LossTerms {
        codec: terms(name),
        ..tolerating(tolerance, HoleFilling::ErrorFeedback)
    }
}

fn job() -> Job {
    let mut job = small_job();
    job.collectives.chunk = ByteCount::mib(1);
    job
}

/// Values of a rank and a step without any pattern, of both signs.
fn gradients(dtype: DType, rank: u16, step: u32, elements: usize) -> Vec<u8> {
    let value = |index: usize| {
        let at = (index * 7919 + step as usize * 104_729 + usize::from(rank) * 1_299_709) as f64;
        (at.sin() * 43_758.547).fract()
    };
    tensor(dtype, (0..elements).map(value))
}

/// The values that all ranks still owe for the tensor.
fn owed(world: &mut World, elements: usize) -> Vec<f64> {
    let mut sum = vec![0.0; elements];
    for rank in 0..world.ranks {
        let residual = world
            .network
            .command(Rank(rank), |rank, _| rank.take_residual(KEY));
        let mut values = vec![0; elements * 4];
        residual.inspect(|residual| residual.write_to(&mut values));
        add(&mut sum, &values);
    }
    sum
}

/// Adds a rank's values to the sums of all.
fn add(sums: &mut [f64], values: &[u8]) {
    for (sum, value) in sums.iter_mut().zip(floats(values)) {
        *sum += f64::from(value);
    }
}

#[test]
fn sent_and_owed_are_the_sum_of_all_inputs() {
    let layouts: [&[u16]; 3] = [&[0, 1, 2], &[0, 0, 1, 1], &[0, 0, 0, 1, 1]];
    let elements = 20_000;
    let mut lost = 0;
    for (seed, (codec, layout)) in CODECS
        .into_iter()
        .flat_map(|codec| layouts.map(|layout| (codec, layout)))
        .enumerate()
    {
        let mut world = World::on_hosts(layout, &job(), rough(0.05), seed as u64);
        let ranks = layout.len() as u16;
        let (mut inputs, mut results) = (vec![0.0; elements], vec![0.0; elements]);
        for step in 0..5 {
            let ends = world.perform(|rank| {
                let values = gradients(DType::F32, rank, step, elements);
                add(&mut inputs, &values);
                Operation {
                    loss: encoded(codec, 0.1),
                    tensor_key: KEY,
                    ..all_reduce(ranks, step, values)
                }
            });
            let replicas = ends.iter().all(|(bytes, _)| *bytes == ends[0].0);
            assert!(
                replicas,
                "{codec:?} on {layout:?}: replicas differ, seed {seed}"
            );
            lost += ends
                .iter()
                .map(|(_, outcome)| outcome.lost_segments)
                .sum::<u64>();
            add(&mut results, &ends[0].0);
        }
        let owed = owed(&mut world, elements);
        for (index, (input, result)) in inputs.iter().zip(&results).enumerate() {
            let kept = result + owed[index];
            let near = (kept - input).abs() < 1e-3;
            assert!(
                near,
                "{codec:?} on {layout:?}, {index}: {kept} of {input}, seed {seed}"
            );
        }
    }
    assert!(lost > 0, "no packet was lost for good");
}

#[test]
fn an_average_owes_in_units_of_contributions() {
    let elements = 4000;
    let mut world = World::new(3, &job(), Profile::perfect(Span::from_micros(10)), 1);
    let (mut inputs, mut results) = (vec![0.0; elements], vec![0.0; elements]);
    for step in 0..4 {
        let ends = world.perform(|rank| {
            let values = gradients(DType::F32, rank, step, elements);
            let floats = floats(&values).into_iter().map(f64::from);
            inputs
                .iter_mut()
                .zip(floats)
                .for_each(|(sum, value)| *sum += value / 3.0);
            Operation {
                op: ReduceOp::Avg,
                loss: encoded(CodecName::Onebit, 0.0),
                tensor_key: KEY,
                ..all_reduce(3, step, values)
            }
        });
        add(&mut results, &ends[0].0);
    }
    let owed = owed(&mut world, elements);
    for (index, (input, result)) in inputs.iter().zip(&results).enumerate() {
        let kept = result + owed[index] / 3.0;
        assert!((kept - input).abs() < 1e-4, "{index}: {kept} of {input}");
    }
}

#[test]
fn a_reduce_scatter_is_encoded_too() {
    let (ranks, elements) = (4, 8000);
    for (seed, codec) in CODECS.into_iter().enumerate() {
        let mut world = World::new(ranks, &job(), rough(0.02), seed as u64);
        let (mut inputs, mut results) = (vec![0.0; elements], vec![0.0; elements]);
        for step in 0..3 {
            let ends = world.perform(|rank| {
                let values = gradients(DType::F32, rank, step, elements);
                add(&mut inputs, &values);
                Operation {
                    collective: Collective::ReduceScatter,
                    input: Some(Buffer::Owned(values)),
                    loss: encoded(codec, 0.1),
                    tensor_key: KEY,
                    ..all_reduce(ranks, step, vec![0; elements])
                }
            });
            let whole: Vec<u8> = ends.into_iter().flat_map(|(block, _)| block).collect();
            add(&mut results, &whole);
        }
        let owed = owed(&mut world, elements);
        for (index, (input, result)) in inputs.iter().zip(&results).enumerate() {
            let kept = result + owed[index];
            assert!(
                (kept - input).abs() < 1e-3,
                "{codec:?} {index}: {kept} of {input}"
            );
        }
    }
}

#[test]
fn other_types_have_equal_replicas() {
    for (seed, dtype) in [DType::F16, DType::BF16, DType::F64]
        .into_iter()
        .enumerate()
    {
        for codec in CODECS {
            let mut world = World::on_hosts(&[0, 0, 1, 1], &job(), rough(0.03), seed as u64);
            let ends = world.perform(|rank| Operation {
                dtype,
                loss: encoded(codec, 0.1),
                ..all_reduce(4, 0, gradients(dtype, rank, 0, 5000))
            });
            let replicas = ends.iter().all(|(bytes, _)| *bytes == ends[0].0);
            assert!(replicas, "{codec:?} of {dtype}: replicas differ");
        }
    }
}

#[test]
fn all_values_of_topk_are_the_exact_sum() {
    let whole = CodecTerms {
        share: share(1.0),
        ..terms(CodecName::Topk)
    };
    let whole_numbers = |rank: u16| (0..3000).map(move |at| (at * (usize::from(rank) + 3)) as f64);
    let run = |codec: CodecTerms| {
        let mut world = World::on_hosts(&[0, 0, 1, 1], &job(), rough(0.0), 3);
        let ends = world.perform(|rank| Operation {
            loss: LossTerms {
                codec,
                ..LossTerms::NONE
            },
            ..all_reduce(4, 0, tensor(DType::F32, whole_numbers(rank)))
        });
        ends.into_iter().map(|(bytes, _)| bytes).collect::<Vec<_>>()
    };
    assert!(run(whole) == run(CodecTerms::NONE));
}

#[test]
fn onebit_contributions_have_a_32nd_of_the_bytes() {
    let (ranks, elements) = (4, 64 * SEGMENT * 8);
    let sent = |name| {
        let mut world = World::new(ranks, &job(), Profile::perfect(Span::from_micros(10)), 1);
        let ends = world.perform(|rank| Operation {
            loss: LossTerms {
                codec: terms(name),
                ..LossTerms::NONE
            },
            ..all_reduce(ranks, 0, gradients(DType::F32, rank, 0, elements))
        });
        ends.iter()
            .map(|(_, outcome)| outcome.sent_segments)
            .sum::<u64>()
    };
    // Each shard goes to its owner, and its sum, of 8 bits a value, from there to all others.
    let (shard, messages) = (elements / usize::from(ranks), ranks * (ranks - 1));
    let packets = |values_of_a_packet: usize| shard.div_ceil(values_of_a_packet) as u64;
    let (plain, signs, sums) = (SEGMENT / 4, (SEGMENT - 4) * 8, SEGMENT - 1);
    let each = u64::from(messages);
    assert_eq!(sent(CodecName::None), each * 2 * packets(plain));
    assert_eq!(
        sent(CodecName::Onebit),
        each * (packets(signs) + packets(sums))
    );
}

#[test]
fn a_sum_of_sparse_contributions_has_all_their_values() {
    let codec = Codec::TopK(share(0.01));
    assert_eq!(codec.of_sum(4, DType::F32), Some(Codec::TopK(share(0.04))));
    assert_eq!(codec.of_sum(50, DType::F32), None);
    assert_eq!(codec.of_sum(200, DType::F32), None);
    let of_signs = Codec::Onebit.of_sum(200, DType::F32);
    assert_eq!(of_signs, Some(Codec::BlockFloat));
}

#[test]
fn codecs_of_integers_and_maxima_are_refused() {
    let cases = [
        (DType::I32, ReduceOp::Sum, Collective::AllReduce),
        (DType::F32, ReduceOp::Max, Collective::AllReduce),
        (
            DType::F32,
            ReduceOp::Sum,
            Collective::Broadcast { root: Rank(0) },
        ),
    ];
    for (dtype, op, collective) in cases {
        let mut world = World::new(2, &job(), rough(0.0), 1);
        let refused = world.submit(
            0,
            Operation {
                dtype,
                op,
                collective,
                loss: encoded(CodecName::Onebit, 0.0),
                ..all_reduce(2, 0, vec![0; 64])
            },
        );
        let told = refused.expect_err("it has no codec");
        assert!(matches!(told, SubmitError::NoCodec { .. }), "{told}");
        assert!(told.to_string().contains("submit it without one"), "{told}");
    }
}

/// Equal values on all ranks: if all rounded them alike, the errors of their sum would add up.
#[test]
fn ranks_round_equal_values_independently() {
    let (ranks, block) = (5_u16, 8_000);
    let mut world = World::new(ranks, &job(), Profile::perfect(Span::from_micros(10)), 1);
    let value = |index: usize| (index * 7919 % 1000) as f64 / 999.0;
    let values = tensor(DType::F32, (0..block).map(value));
    let ends = world.perform(|_| Operation {
        collective: Collective::ReduceScatter,
        buffer: Buffer::Owned(vec![0; block * 4]),
        input: Some(Buffer::Owned(values.repeat(usize::from(ranks)))),
        loss: encoded(CodecName::Terngrad, 0.0),
        tensor_key: KEY,
        ..all_reduce(ranks, 0, Vec::new())
    });
    // A value between levels a third apart has a mean squared error of a sixth of that, squared.
    let encoded = f64::from(ranks - 1);
    let of_one = 1.0 / 54.0;
    for (bytes, _) in &ends {
        let error = |(index, &sum): (usize, &f32)| f64::from(sum) - f64::from(ranks) * value(index);
        let sums = floats(bytes);
        let squares = sums.iter().enumerate().map(|one| error(one).powi(2));
        let mean = squares.sum::<f64>() / block as f64;
        assert!(
            mean < 1.5 * encoded * of_one,
            "{mean}: of one rank {of_one}"
        );
    }
}

#[test]
fn encoded_tensors_without_a_key_leave_nothing_for_others() {
    let elements = 20_000;
    for codec in CODECS {
        let mut world = World::new(3, &job(), Profile::perfect(Span::from_micros(10)), 1);
        world.perform(|rank| Operation {
            loss: encoded(codec, 0.0),
            tensor_key: 0,
            ..all_reduce(3, 0, gradients(DType::F32, rank, 0, elements))
        });
        // Another tensor of the same shape has no rest of the first one.
        let zeros = vec![0; elements * 4];
        let ends = world.perform(|_| Operation {
            loss: encoded(codec, 0.0),
            tensor_key: 0,
            ..all_reduce(3, 1, zeros.clone())
        });
        for (bytes, _) in &ends {
            assert!(floats(bytes).iter().all(|&sum| sum == 0.0), "{codec:?}");
        }
        for host in world.network.hosts() {
            assert_eq!(host.residuals().iter().count(), 0, "{codec:?}");
        }
    }
}
