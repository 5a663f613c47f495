// Package enginemetrics reads the metrics pages of inference engines and brings them to one set of figures.
//
// Parse reads a page and survives what real pages do wrong. Detect says which dialect its names belong to, and
// Normalise takes the figures out of it by the dialect's table: one file for each dialect, one row for each figure.
// A Reader does this for one target on its own cadence, outside of anybody's scrape; a Collector exports what the
// readers have read last.
//
// A figure that the page does not give is nil and is not exported. A figure that the dialect should give and the
// page lacks is named, so that a renamed metric shows up as missing and not as a silent zero.
package enginemetrics
