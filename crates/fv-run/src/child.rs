//! Asking a driver's library from a process of its own. A driver may hang, crash or hold memory for as long as a process
//! lives; none of that may happen to the one that answers the user.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use fv_device::reading::Line;

/// How long a process that has said everything, or was ended, may take to go.
const FAREWELL: Duration = Duration::from_secs(2);

/// The longest line that is read.
const LONGEST: u64 = 1 << 20;

/// What a reader said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its lines, as far as they could be read.
    pub lines: Vec<Line>,
    /// Why it did not say everything.
    pub broke_off: Option<String>,
}

impl Answer {
    /// The answer that a reader's output is; for recorded output.
    pub fn recorded(text: &str) -> Self {
        let mut answer = Self::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            answer.take(line);
        }
        answer.close("it ended early");
        answer
    }

    /// Whether the reader came to its end.
    pub fn complete(&self) -> bool {
        matches!(self.lines.last(), Some(Line::Done | Line::Absent { .. } | Line::Failed { .. }))
    }

    fn take(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(line) => self.lines.push(line),
            Err(error) => self.broke_off = Some(format!("a line cannot be read: {error}")),
        }
    }

    fn close(&mut self, why: &str) {
        if !self.complete() && self.broke_off.is_none() {
            self.broke_off = Some(why.to_owned());
        }
    }
}

/// Runs a reader and takes down what it prints, until it ends or says nothing for `silence`.
pub fn ask(mut command: Command, silence: Duration) -> Answer {
    let mut answer = Answer::default();
    let mut child = match command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(error) => {
            answer.close(&format!("it could not be started: {error}"));
            return answer;
        }
    };
    let Some(output) = child.stdout.take() else { return answer };
    let (send, lines) = mpsc::channel();
    // Left behind when the process cannot be ended: a read from it does not return then.
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let mut line = String::new();
            if output.by_ref().take(LONGEST).read_line(&mut line).unwrap_or(0) == 0 || send.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => answer.take(&line),
            Err(RecvTimeoutError::Timeout) => {
                answer.close(&format!("it said nothing for {} s and was ended", silence.as_secs_f32()));
                end(&mut child);
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let how = gone(&mut child).map_or_else(|| "it did not end".to_owned(), |status| format!("it ended early with {status}"));
                answer.close(&how);
                break;
            }
        }
    }
    answer
}

/// Ends a process that does not answer; one that waits inside of the kernel stays until that returns.
fn end(child: &mut Child) {
    let _ = child.kill();
    gone(child);
}

fn gone(child: &mut Child) -> Option<std::process::ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < FAREWELL {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => thread::sleep(Duration::from_millis(5)),
            Err(_) => return None,
        }
    }
    let _ = child.kill();
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn said(script: &str, silence: u64) -> Answer {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        ask(shell, Duration::from_millis(silence))
    }

    #[test]
    fn whatever_a_reader_does_there_is_an_answer() {
        let absent = r#"{"absent":{"message":"no"}}"#;
        let driver = r#"{"driver":{"version":"1"}}"#;
        let long = 60_000;
        for (script, silence, lines, why) in [
            (format!("echo '{absent}'"), long, 1, None),
            (format!("echo '{driver}'; echo '\"done\"'"), long, 2, None),
            // Drivers that crash while they are unloaded have said everything.
            ("echo '\"done\"'; kill -9 $$".to_owned(), long, 1, None),
            (format!("echo '{driver}'; exit 101"), long, 1, Some("it ended early with exit status: 101")),
            (format!("echo '{driver}'; kill -9 $$"), long, 1, Some("it ended early with signal: 9 (SIGKILL)")),
            (format!("echo '{driver}'; sleep 600"), 300, 1, Some("it said nothing for 0.3 s and was ended")),
            ("exit 0".to_owned(), long, 0, Some("it ended early with exit status: 0")),
            ("echo hello".to_owned(), long, 0, Some("a line cannot be read: expected value at line 1 column 1")),
        ] {
            let answer = said(&script, silence);
            assert_eq!((answer.lines.len(), answer.broke_off.as_deref()), (lines, why), "{script}");
        }
        let answer = ask(Command::new("/nowhere/reader"), Duration::from_secs(60));
        assert!(answer.broke_off.is_some_and(|why| why.starts_with("it could not be started: ")));
    }

    #[test]
    fn a_recorded_answer_that_breaks_off_says_so() {
        assert_eq!(Answer::recorded("").broke_off.as_deref(), Some("it ended early"));
        assert_eq!(Answer::recorded("\"done\"\n").broke_off, None);
    }
}
