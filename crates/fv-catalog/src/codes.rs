//! Every kind of finding: its code, what it means and how to mend it. `docs/findings/` is generated from here.

macro_rules! codes {
    ($($variant:ident $slug:literal $about:literal $mend:literal)*) => {
        /// The kind of a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "`about` says what each one means")]
        pub enum Code { $($variant,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The code as printed, without its `catalog::` prefix.
            pub fn slug(self) -> &'static str {
                match self { $(Self::$variant => $slug,)* }
            }

            /// What it means.
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }

            /// How to mend it.
            pub fn mend(self) -> &'static str {
                match self { $(Self::$variant => $mend,)* }
            }
        }
    };
}

codes! {
    YamlSyntax "yaml-syntax" "The text is not valid YAML 1.2 from the marked place on." "Close the bracket or quote, or mend the indentation. The rest of the file is not checked until it can be read."
    DuplicateKey "duplicate-key" "A mapping holds the same key twice. Many readers silently keep one of them." "Keep one of the two marked keys."
    Anchor "anchor" "The text uses an anchor or an alias. A value must stand where it is used, so that a finding can point at it." "Write the value out in each place."
    MergeKey "merge-key" "The text uses the merge key `<<`." "Write the merged fields out. Deployments are merged over their baseline by the catalog itself."
    Tag "tag" "A value carries a YAML tag." "Remove the tag; quote the value if it should be text."
    KeyNotText "key-not-text" "A key is a list, a mapping or empty." "Use a plain name as key."
    MultipleDocuments "multiple-documents" "The file holds more than one YAML document." "Keep one document in each file."
    NonFiniteNumber "non-finite-number" "A number is infinite, not a number, or too large for one." "Write a finite number, or leave the field out when the value is unknown."
    IntegerTooLarge "integer-too-large" "An integer does not fit in 64 bits." "Correct it, or quote it if it should be text."
    EmptyFile "empty-file" "The file is empty or holds nothing but comments." "Add the document, or delete the file."
    TooDeep "too-deep" "The text is nested more than 32 levels deep." "Flatten it."
    NotUtf8 "not-utf8" "The file is not UTF-8 text." "Save it as UTF-8."
    TooLarge "too-large" "The file is larger than 16 MiB and was not read." "Split it, or remove what does not belong there."
    NotAFile "not-a-file" "A directory or device stands where a file is expected, or the other way round." "Put the file there."
    LinkLoop "link-loop" "A symbolic link leads back to itself." "Point the link at the file."
    Unreadable "unreadable" "The system would not open or read the file." "Correct its permissions."
    MissingFile "missing-file" "A file that every catalog has is not there." "Add it; an empty catalog still has its four shared files and a `models` folder."
    UnexpectedFile "unexpected-file" "A file lies where no file of that name is read." "Rename it to what the catalog reads, or move it out."
    UnknownField "unknown-field" "A field is not known here." "Correct the spelling, or remove it. The help lists what is allowed."
    MissingField "missing-field" "A required field is not there." "Add it."
    WrongType "wrong-type" "A value has another type than the field takes." "Write the type that the message names. Scalars with separators are text, and only counts take them."
    NotAllowed "not-allowed" "A value is not one of the allowed ones." "Use one of the values in the help."
    OutOfRange "out-of-range" "A number lies outside what the field allows." "Correct it."
    Empty "empty" "A text, list or mapping that must hold something is empty." "Fill it in, or leave an optional field out."
    BadCount "bad-count" "A count is not a positive integer with digits grouped by thousands." "Write `1_489_821_760` or `1489821760`."
    BadFormat "bad-format" "A text does not have the form the field needs." "The message names the form."
    BadDate "bad-date" "A date is not a day written `YYYY-MM-DD`." "Write the day as `2026-11-30`."
    BadId "bad-id" "An id or key holds characters that ids may not hold." "Use lower-case letters and digits, with single `.`, `-` or `_` between them."
    BadLength "bad-length" "A list has too many or too few items." "`patch_size` has exactly three items: time, height, width. A range has two."
    DuplicateItem "duplicate-item" "A list holds the same item twice." "Keep one of them."
    UnknownReference "unknown-reference" "A reference names a component that is not defined." "Correct the name, or define the component in the file for its type."
    WrongTypeReference "wrong-type-reference" "A reference names a component of another type than its role takes." "A transformer role takes a transformer, an encoder role an encoder, a VAE role a VAE."
    UnusedComponent "unused-component" "A shared component is used by no model, neither in a role nor as an alternative." "Use it, or remove it."
    SelfAlternative "self-alternative" "A component is listed as an alternative to itself, or an alternative is listed twice." "Remove it from `alternatives`."
    DuplicateId "duplicate-id" "Two things that must differ carry the same id." "Rename one of them."
    BlockFields "block-fields" "The block fields are incomplete or contradict each other." "Give `block_count` and `block_parameter_count` together, or `block_groups` alone."
    BlocksExceedTotal "blocks-exceed-total" "The blocks together hold more parameters than the whole component." "Correct one of the counts."
    GeometryRequired "geometry-required" "The family of memory rules needs a geometry field that the component does not give." "Add the field to the component's geometry."
    GeometryNotDeclared "geometry-not-declared" "A geometry field is declared by none of the families whose models use the component." "Remove it, or declare it in the family."
    VaeOnly "vae-only" "`decode_feature_multiplier` stands on a component that is not a VAE." "Remove it."
    UsablePolicy "usable-policy" "`usable` and `policy` come together or not at all." "Add the policy that documents the figure, or remove `usable`."
    CapacityOrder "capacity-order" "A capacity is larger than the memory it is part of." "Correct one of the figures or its unit."
    PartitionsNotAllowed "partitions-not-allowed" "Partitions are listed on a device that is not marked `partitionable: true`." "Add `partitionable: true`, or remove the partitions."
    FamilyVariant "family-variant" "`family` and `variant` come together or not at all." "Add the other one."
    UnifiedHostMemory "unified-host-memory" "A device with unified memory has no host memory apart from it." "Remove `host_memory`, or correct `memory.type`."
    AliasTaken "alias-taken" "An alias equals another id or alias." "Keep the name on one device."
    VendorSource "vendor-source" "A device cites no source of its vendor's own." "Add a page on the vendor's own site, marked `kind: vendor`."
    SourceUnread "source-unread" "No source of the entry was read." "Add an independent source that was read, with the day it was checked."
    SourceDate "source-date" "A source has both `checked` and `unread`, or neither." "Give the day on which the figures were compared with the text, or `unread: true` when nobody could."
    RunHardware "run-hardware" "A reference run names hardware or a partition that the catalog does not hold." "Use a hardware id, and a partition of that hardware. Aliases are for searching."
    RunAllocation "run-allocation" "A reference run's allocation is larger than the card or partition." "Correct it; it is decimal GB."
    RunDeployment "run-deployment" "A reference run names a deployment that the model does not have, or another runtime than the deployment's." "Use a deployment of this model with its runtime."
    RunConfig "run-config" "A reference run's configuration is of another model or GPU count." "Record the complete effective configuration of the run itself."
    RunEvidence "run-evidence" "A reference run has no evidence, or evidence of two kinds." "Give `evidence_url`, or `evidence_path` with `evidence_sha256`."
    RunRevisions "run-revisions" "A reference run names the revision of another runtime than its own." "`revisions.fastvideo` for fastvideo, `revisions.runtime` for every other runtime."
    RunWeights "run-weights" "A reference run does not say which weights it used." "fv-run needs `context.weights`."
    RunRanks "run-ranks" "The measured ranks are not 0 to `gpu_count` - 1, each once." "Give one entry for each rank."
    RunScope "run-scope" "The scope of a measurement is not the scope of its metric." "Allocator metrics have scope `allocator`, `device_used` has scope `device`."
    StagePeak "stage-peak" "A stage's peak is larger than the peak of the request that contains it." "Correct one; both are in the same metric."
    PlanPeaks "plan-peaks" "Arena peaks are given for a runtime that has no arena." "Only fv-run plans an arena; measured peaks belong in `memory`."
    Credential "credential" "A value looks like a credential. It is not shown." "Remove it from the file and revoke it; records are public."
    NotFitted "not-fitted" "A coefficient is not what the rows give that it was fitted to." "Undo the change, or fit again: `fv-catalog accuracy --fit` for measured rows, `fv-catalog calibrate --write` for reference runs."
    RangeOrder "range-order" "A range ends below its start." "Write the lowest value first."
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "catalog::{}", self.slug())
    }
}
