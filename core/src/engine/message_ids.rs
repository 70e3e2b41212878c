//! Message ids, written into deliveries digit by digit: there is one in each.

use super::engine::Engine;

impl Engine {
    pub(super) fn message_id_size(&self, (producer, sequence): (u64, u64)) -> usize {
        let start = self.state.start_id_of(producer).map_or(0, |_| START_ID_SIZE);
        4 + self.settings.broker.len() + digits(producer, 16) + start + 1 + digits(sequence, 10)
    }

    pub(super) fn put_message_id(&self, (producer, sequence): (u64, u64), out: &mut Vec<u8>) {
        out.extend_from_slice(b"ID:");
        out.extend_from_slice(self.settings.broker.as_bytes());
        out.push(b'.');
        put_digits(producer, 16, out);
        if let Some(start) = self.state.start_id_of(producer) {
            out.push(b'.');
            out.resize(out.len() + START_ID_SIZE - 1 - digits(start, 16), b'0');
            put_digits(start, 16, out);
        }
        out.push(b':');
        put_digits(sequence, 10, out);
    }
}

/// A dot and sixteen digits, as `message_id_prefix` has it.
const START_ID_SIZE: usize = 17;

fn digits(mut value: u64, base: u64) -> usize {
    let mut count = 1;
    while value >= base {
        value /= base;
        count += 1;
    }
    count
}

fn put_digits(value: u64, base: u64, out: &mut Vec<u8>) {
    let start = out.len();
    let mut rest = value;
    loop {
        out.push(b"0123456789ABCDEF"[(rest % base) as usize]);
        rest /= base;
        if rest == 0 {
            break;
        }
    }
    out[start..].reverse();
}
