//! Sources: every fact has one that somebody read.

use fv_spec::authored::{Source, SourceKind};

use super::At;
use crate::{codes::Code, finding::Finding, yaml::Step};

/// Checks the sources at `path` of an entry.
pub(crate) fn check(at: &At, path: &[Step], sources: &[Source], findings: &mut Vec<Finding>) {
    for (i, source) in sources.iter().enumerate() {
        let item = [path, &[Step::Index(i)]].concat();
        let item_span = at.value(&item);
        match (&source.checked, source.unread) {
            (None, None) => {
                let help = "the day the figures were compared with the text, or `unread: true` when nobody could";
                findings.push(at.finding(Code::MissingField, item_span, "this needs `checked`", "missing field `checked`").help(help));
            }
            (Some(_), Some(_)) => {
                let span = at.key(&[&item[..], &["unread".into()]].concat());
                let help = "keep `checked` when the text was read, `unread` when it was not";
                findings
                    .push(at.finding(Code::SourceDate, span, "contradicts `checked`", "a source is either checked or unread").help(help));
            }
            _ => {}
        }
    }
    let read = sources.iter().any(|source| source.checked.is_some());
    let open = sources.iter().any(|source| source.checked.is_none() && source.unread.is_none());
    if !sources.is_empty() && !read && !open {
        let help = "add a second, independent source that was read, with the day it was checked";
        findings
            .push(at.finding(Code::SourceUnread, at.key(path), "none of these was read", "no source of this entry was read").help(help));
    }
}

/// Checks that a device cites its vendor.
pub(crate) fn check_vendor(at: &At, vendor: &str, sources: &[Source], findings: &mut Vec<Finding>) {
    let known = vendor_domains(vendor);
    if let (None, [near, ..]) = (known, fv_data::nearest(vendor, VENDORS.iter().map(|(name, _)| *name)).as_slice()) {
        let message = format!("vendor `{}` is not known", crate::yaml::short(vendor));
        findings.push(
            at.finding(Code::NotAllowed, at.value(&["vendor".into()]), "a new vendor?", message).help(format!("did you mean `{near}`?")),
        );
        return;
    }
    let own = |source: &Source| match known {
        Some(domains) => domains.iter().any(|domain| host(&source.url).is_some_and(|host| is_within(host, domain))),
        None => source.kind == Some(SourceKind::Vendor),
    };
    if !sources.iter().any(|source| own(source) && source.kind.is_none_or(|kind| kind == SourceKind::Vendor)) {
        let help = match known {
            Some(domains) => format!("add a page of {}, marked `kind: vendor`", domains.join(" or ")),
            None => "add a page of the vendor's own site, marked `kind: vendor`".to_owned(),
        };
        let message = format!("no source of the vendor's own ({})", crate::yaml::short(vendor));
        findings.push(at.finding(Code::VendorSource, at.key(&["sources".into()]), "none is the vendor's", message).help(help));
    }
}

/// Vendors whose sites are known. Another vendor's page counts when it is marked `kind: vendor`.
const VENDORS: [(&str, &[&str]); 4] =
    [("nvidia", &["nvidia.com"]), ("amd", &["amd.com"]), ("intel", &["intel.com"]), ("apple", &["apple.com"])];

fn vendor_domains(vendor: &str) -> Option<&'static [&'static str]> {
    VENDORS.iter().find(|(name, _)| *name == vendor).map(|(_, domains)| *domains)
}

/// The host of an HTTP(S) address.
pub(crate) fn host(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    rest.split(['/', ':', '?', '#']).next().filter(|host| !host.is_empty())
}

fn is_within(host: &str, domain: &str) -> bool {
    let host = host.to_ascii_lowercase();
    host == domain || host.strip_suffix(domain).is_some_and(|prefix| prefix.ends_with('.'))
}
