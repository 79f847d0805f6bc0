"""Training on text: encoders on sentences, a decoder on characters; float, binary and BWTA."""
