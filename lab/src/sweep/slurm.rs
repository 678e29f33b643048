//! A sweep as a Slurm job array: the text of its batch script.

use std::path::Path;

use crate::shell;

/// Most tasks of an array where a cluster's `MaxArraySize` is Slurm's default.
pub const TASKS_MOST: usize = 1_000;

/// Returns the script, each task of which runs a share of the plan; both paths are absolute.
pub fn script(plan: &Path, out: &Path, tasks: usize) -> String {
    let command = format!("gradwire sim sweep {} --out {}", word(plan), word(out));
    format!(
        "#!/bin/sh
#SBATCH --job-name=gradwire-sweep
#SBATCH --array=0-{last}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --requeue
# Submit with sbatch. When all tasks have ended:
#   {command} --gather
exec {command} \\
    --parallel 1 --shard \"$SLURM_ARRAY_TASK_ID/{tasks}\"
",
        last = tasks - 1
    )
}

fn word(path: &Path) -> String {
    shell::word(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_arrays_cover_all_shards() {
        let script = script(
            Path::new("/data/it's a plan.toml"),
            Path::new("/data/out"),
            16,
        );
        assert!(script.contains("#SBATCH --array=0-15\n"), "{script}");
        assert!(
            script.contains("--shard \"$SLURM_ARRAY_TASK_ID/16\"\n"),
            "{script}"
        );
        assert!(
            script.contains(r"'/data/it'\''s a plan.toml' --out /data/out"),
            "{script}"
        );
    }
}
