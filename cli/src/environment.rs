//! The only place where the command reads its environment.

use std::path::{Path, PathBuf};

/// Variables that options fall back to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Environment {
    /// `GRADWIRE_JOB`: the job file.
    pub job: Option<PathBuf>,
    /// `GRADWIRE_TOKEN`: the secret that the ranks of a job share.
    pub token: Option<String>,
    /// `GRADWIRE_TOKEN_FILE`: a file with that secret, which no list of processes shows.
    pub token_file: Option<PathBuf>,
    /// `GRADWIRE_CERT`: the certificate of this rank.
    pub certificate: Option<PathBuf>,
    /// `GRADWIRE_KEY`: the key of that certificate.
    pub key: Option<PathBuf>,
    /// `GRADWIRE_CA`: the authority that every rank's certificate must be of.
    pub authority: Option<PathBuf>,
    /// `LOCAL_RANK`: the number of a rank on its host, as launchers tell it.
    pub local_rank: Option<u16>,
    /// `GRADWIRE_LOG`: how much is told on standard error.
    pub log: Option<String>,
    /// `GRADWIRE_TRACE`: the folder into which the flight recorder is written on failure.
    pub trace: Option<PathBuf>,
    /// `VIRTUAL_ENV`: the active virtual environment of Python.
    pub virtual_env: Option<PathBuf>,
}

impl Environment {
    /// Reads the variables; empty ones count as absent.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the place that reads the environment"
    )]
    pub fn read() -> Self {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            job: path("GRADWIRE_JOB").map(PathBuf::from),
            token: std::env::var("GRADWIRE_TOKEN")
                .ok()
                .filter(|token| !token.is_empty()),
            token_file: path("GRADWIRE_TOKEN_FILE").map(PathBuf::from),
            certificate: path("GRADWIRE_CERT").map(PathBuf::from),
            key: path("GRADWIRE_KEY").map(PathBuf::from),
            authority: path("GRADWIRE_CA").map(PathBuf::from),
            local_rank: std::env::var("LOCAL_RANK")
                .ok()
                .and_then(|number| number.parse().ok()),
            log: std::env::var("GRADWIRE_LOG")
                .ok()
                .filter(|level| !level.is_empty()),
            trace: path("GRADWIRE_TRACE").map(PathBuf::from),
            virtual_env: path("VIRTUAL_ENV").map(PathBuf::from),
        }
    }

    /// The secret that the ranks of a job share, from its variable or its file; `None` without
    /// either.
    ///
    /// # Errors
    /// When the file cannot be read or is empty, in words.
    pub fn token(&self) -> Result<Option<String>, String> {
        let (None, Some(path)) = (&self.token, &self.token_file) else {
            return Ok(self.token.clone());
        };
        let named = |reason: String| {
            let path = path.display();
            format!("GRADWIRE_TOKEN_FILE {path}: {reason}; it is a text file with the job's token")
        };
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        match text.trim() {
            "" => Err(named("it is empty".to_owned())),
            token => Ok(Some(token.to_owned())),
        }
    }

    /// The Python that a command starts: the one that was `given`, else that of the active virtual
    /// environment, else the one of `.venv` here, else any.
    pub fn python(&self, given: Option<&Path>) -> PathBuf {
        let active = self
            .virtual_env
            .as_ref()
            .map(|path| path.join("bin/python"));
        let local = || Some(PathBuf::from(".venv/bin/python")).filter(|path| path.exists());
        let given = given.map(Path::to_owned).or(active).or_else(local);
        given.unwrap_or_else(|| PathBuf::from("python3"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_may_lie_in_a_file() {
        let path = std::env::temp_dir().join(format!("gradwire-token-{}", std::process::id()));
        let environment = Environment {
            token_file: Some(path.clone()),
            ..Environment::default()
        };
        let missing = environment.token().expect_err("there is no file");
        assert!(missing.contains("GRADWIRE_TOKEN_FILE"), "{missing}");
        std::fs::write(&path, "\n").expect("the folder is writable");
        assert!(
            environment
                .token()
                .is_err_and(|error| error.contains("empty"))
        );
        std::fs::write(&path, "a long secret\n").expect("the folder is writable");
        assert_eq!(environment.token(), Ok(Some("a long secret".to_owned())));
        std::fs::remove_file(&path).expect("it is there");
    }
}
