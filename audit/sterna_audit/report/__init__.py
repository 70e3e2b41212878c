"""The report of a run of audits: one HTML file that needs no network and no scripts."""
