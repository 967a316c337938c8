//! Why a command ends early.

use std::io;

use fv_estimate::error::InputError;

/// Why a command ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The answer is no or unknown, and has been said.
    No,
    /// Wrong usage or I/O.
    Usage(String),
    /// What is missing has been said in the answer.
    Unreadable,
    /// There is no device that could be used.
    NoDevice(String),
    /// It does not fit, and that has been said.
    Refused,
    /// It does not fit, and what is short.
    Short(String),
    /// The user ended it: how far it is, and how it goes on.
    Interrupted(String),
    /// The reader of our output has gone: nothing more to do.
    Closed,
}

impl Stop {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::No => 1,
            Self::Usage(_) | Self::Unreadable => 2,
            Self::NoDevice(_) => 3,
            Self::Refused | Self::Short(_) => 4,
            Self::Interrupted(_) => 130,
        }
    }

    /// Says what has not been said yet, and gives the exit code. Paths and names may hold what a terminal obeys; that becomes marks.
    pub fn report(&self, err: &mut dyn io::Write) -> u8 {
        let said = match self {
            Self::Usage(message) | Self::NoDevice(message) | Self::Short(message) => Some(("error: ", message)),
            Self::Interrupted(message) => Some(("", message)),
            Self::No | Self::Unreadable | Self::Refused | Self::Closed => None,
        };
        if let Some((kind, message)) = said {
            // Nobody is left to hear that the error stream is closed.
            let _ = writeln!(err, "{kind}{}", message.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}"));
        }
        self.code()
    }

    /// Wrong input, all of it.
    pub fn wrong(errors: impl IntoIterator<Item = InputError>) -> Self {
        let mut messages: Vec<String> = Vec::new();
        for error in errors {
            // One slip can be met on two ways.
            if !messages.contains(&error.message) {
                messages.push(error.message);
            }
        }
        Self::Usage(messages.join("\nerror: "))
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Usage(error.to_string()) }
    }
}

impl From<fv_data::ReadError> for Stop {
    fn from(error: fv_data::ReadError) -> Self {
        Self::Usage(error.to_string())
    }
}
