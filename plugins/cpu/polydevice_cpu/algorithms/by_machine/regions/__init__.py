"""Regions of pictures: bins of which averages and maxima are taken."""
