//! Server-sent events, put together from bytes as they arrive.

/// Most bytes of an event: a server that sends no line ends must not fill the memory.
const MOST: usize = 16 << 20;

/// A stream of events that has been read up to some byte.
#[derive(Debug, Default)]
pub(crate) struct SseDecoder {
    line: Vec<u8>,
    data: Option<Vec<u8>>, // of the event that has begun; its lines with newlines between
    after_cr: bool,
    past_first_line: bool,
}

impl SseDecoder {
    /// Adds the next bytes and returns the data of the events that they complete.
    ///
    /// # Errors
    /// An event is too long or not UTF-8.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut events = Vec::new();
        for &byte in bytes {
            let after_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if after_cr => {} // the second half of a line end
                b'\r' | b'\n' => events.extend(self.end_line()?),
                _ => self.line.push(byte),
            }
            if self.line.len() + self.data.as_ref().map_or(0, Vec::len) > MOST {
                return Err(format!("an event of more than {MOST} bytes"));
            }
        }
        Ok(events)
    }

    /// The line is whole; an empty one ends an event.
    fn end_line(&mut self) -> Result<Option<String>, String> {
        let line = std::mem::take(&mut self.line);
        let line = match self.past_first_line {
            true => &line[..],
            false => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line), // a byte order mark
        };
        self.past_first_line = true;
        if line.is_empty() {
            let data = self.data.take();
            return data
                .map(|data| String::from_utf8(data).map_err(|_| "an event that is not UTF-8".to_owned()))
                .transpose();
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        // Lines without a field name are comments; a load needs no other field.
        if &line[..colon] == b"data" {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &mut self.data {
                None => self.data = Some(value.to_vec()),
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a stream that arrives in pieces of `size` bytes.
    fn read(stream: &str, size: usize) -> Vec<String> {
        let mut events = SseDecoder::default();
        stream.as_bytes().chunks(size).flat_map(|piece| events.push(piece).expect("a stream")).collect()
    }

    #[test]
    fn events_do_not_depend_on_where_the_bytes_are_split() {
        let stream = "data: {\"a\": \"ü\"}\n\ndata: 2\n\ndata: [DONE]\n\n";
        for size in 1..=stream.len() {
            assert_eq!(read(stream, size), ["{\"a\": \"ü\"}", "2", "[DONE]"], "{size}");
        }
    }

    #[test]
    fn all_line_ends_count() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = ["data: 1", "data: 2", "", "data: 3", "", ""].join(end);
            for size in [1, 2, 3, 100] {
                assert_eq!(read(&stream, size), ["1\n2", "3"], "{end:?} {size}");
            }
        }
    }

    #[test]
    fn comments_other_fields_and_a_byte_order_mark_are_passed_over() {
        let stream = "\u{feff}data:no space\n: keep-alive\nevent: x\nid: 7\nretry\n\n: ping\n\nevent: nothing\n\ndata\n\ndata:  two\n\n";
        assert_eq!(read(stream, 5), ["no space", "", " two"]);
    }

    #[test]
    fn an_event_without_its_end_is_none() {
        assert_eq!(read("data: 1\n\ndata: cut", 4), ["1"]);
    }

    #[test]
    fn what_is_no_text_and_what_has_no_end_is_refused() {
        assert!(SseDecoder::default().push(b"data: \xff\n\n").is_err());
        let mut events = SseDecoder::default();
        let endless = vec![b'x'; MOST + 1];
        assert!(events.push(&endless).is_err());
    }
}
