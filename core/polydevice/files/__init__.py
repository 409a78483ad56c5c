"""Files: which may be read, archives of networks, and what is kept between runs."""
