# Commands of `gradwire sim` to begin with; run them in the root of the repository.

# One run, as a table: a permutation on a fat-tree of 16 hosts.
gradwire sim run fat-tree:k=4@100G permutation:2MB

# The same as one JSON object, by another transport.
gradwire sim run fat-tree:k=4@100G permutation:2MB --transport ndp --json

# Many to one with small tensors, of which a tenth may be missing.
gradwire sim run single:65@100G incast:64x64KB --tolerance 10%

# Flows that arrive at random, at 40 % of what the hosts' links carry.
gradwire sim run leaf-spine:2x8x4@100G poisson:websearch@0.4:2ms --transport dctcp

# An all-reduce on a fabric from a file.
gradwire sim run examples/fabrics/two-racks.toml all-reduce:4MiB

# A connection matrix whose flows start each other.
gradwire sim run fat-tree:k=4@100G examples/sim/triggers.cm

# A pipeline of two ranks, and one training step of a small model.
gradwire sim run single:2@100G examples/sim/pipeline.goal
gradwire sim run single:8@100G examples/sim/step.txt --json

# A permutation beside another job.
gradwire sim run fat-tree:k=4@100G permutation:1MB --background poisson:hadoop@0.3:200us

# Three transports and ten seeds: ratios with their intervals.
gradwire sim compare fat-tree:k=4@100G permutation:1MB --transports gradwire,dctcp,ndp

# A report with pictures.
gradwire sim report fat-tree:k=4@100G permutation:1MB --transports gradwire,dctcp --out report.html
